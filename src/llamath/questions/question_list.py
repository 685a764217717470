"""`QUESTIONS`: every question, in the order of the functions that answer them."""

from __future__ import annotations

from .design_question import DesignQuestion
from .file_questions import NamesQuestion, SameQuestion, StoredNamesQuestion, VerifyQuestion
from .fit_questions import (
    EngineQuestion,
    EnginesQuestion,
    FitQuestion,
    MachinesQuestion,
    QuantsQuestion,
    RankQuestion,
)
from .memory_questions import MemoryQuestion, TrainingQuestion
from .parameter_questions import CountQuestion, ExplainQuestion, LessonQuestion, ModelsQuestion
from .pass_questions import CodeQuestion, FlopsQuestion
from .plan_questions import PlanQuestion, ServingPlanQuestion
from .serving_questions import CostQuestion, PairQuestion, PlaceQuestion
from .settings import Question

QUESTIONS: tuple[type[Question], ...] = (
    CountQuestion,
    ExplainQuestion,
    CodeQuestion,
    LessonQuestion,
    DesignQuestion,
    MemoryQuestion,
    TrainingQuestion,
    FlopsQuestion,
    FitQuestion,
    MachinesQuestion,
    RankQuestion,
    EngineQuestion,
    EnginesQuestion,
    QuantsQuestion,
    PlaceQuestion,
    PairQuestion,
    CostQuestion,
    PlanQuestion,
    ServingPlanQuestion,
    VerifyQuestion,
    SameQuestion,
    NamesQuestion,
    StoredNamesQuestion,
    ModelsQuestion,
)
