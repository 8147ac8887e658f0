"""The mixin that shows fitted models in notebooks."""

from __future__ import annotations

from typing import Any

from sklearn import get_config

from shortlist._utils.html import card, details, facts


class DescriptionMixin:
    """Show the description of a fitted model in notebooks.

    A class implements `describe`. Models that are not fitted are shown by scikit-learn.
    """

    def describe(self) -> dict[str, str]:
        """Return what is known about the fitted model, by topic."""
        raise NotImplementedError

    def _repr_html_(self) -> str | None:
        """Return the description as HTML, unless scikit-learn is configured to show text."""
        html: str | None = self._repr_mimebundle_().get("text/html")
        return html

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        """Return the representations of the model, which notebooks choose from."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if hasattr(self, "classes_") and get_config()["display"] == "diagram":
            parameters = details("parameters", repr(self))
            bundle["text/html"] = card(type(self).__name__, facts(self.describe()), parameters)
        return bundle
