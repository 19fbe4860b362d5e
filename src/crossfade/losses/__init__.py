"""The terms of the total loss (Section 3.5): L = w1·L_F + w2·L_B + w3·L_C + L_λ. Needs torch."""
