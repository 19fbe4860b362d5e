"use strict";
// Under the pointer: the nearest point of a curve, and its numbers.
document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest ? event.target.closest("svg.chart") : null;
  for (const other of document.querySelectorAll("svg.chart.pointed")) {
    if (other !== chart) other.classList.remove("pointed");
  }
  if (!chart) return;
  const points = JSON.parse(chart.dataset.points);
  const scale = chart.viewBox.baseVal.width / chart.getBoundingClientRect().width;
  const at = (event.clientX - chart.getBoundingClientRect().left) * scale;
  let nearest = points[0];
  for (const point of points) {
    if (Math.abs(point[0] - at) < Math.abs(nearest[0] - at)) nearest = point;
  }
  const [x, y, words] = nearest;
  const [line, dot, text] = chart.querySelector(".cursor").children;
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  dot.setAttribute("cx", x);
  dot.setAttribute("cy", y);
  text.textContent = words;
  const half = text.getComputedTextLength() / 2;
  const [left, right] = [points[0][0] + half, points[points.length - 1][0] - half];
  text.setAttribute("x", Math.max(left, Math.min(right, x)));
  chart.classList.add("pointed");
});
