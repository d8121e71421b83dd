"""What holds for all tests: a property fails by what it finds, never by how busy the machine is."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")
