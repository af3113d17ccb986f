"""What runs at the site: small, without Ray and without torch."""
