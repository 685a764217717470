"""What tokens and training runs cost: money, GPU-hours, energy and CO₂, as intervals."""
