"""From a store to an answer in one call: is an upgrade worth it, and how is it carried out?"""

from crossfade.assessment.answer import Answer
from crossfade.assessment.promise import Stage
from crossfade.assessment.quickstart import quickstart

__all__ = ["Answer", "Stage", "quickstart"]
