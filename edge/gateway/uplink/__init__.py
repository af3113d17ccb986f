"""From a site's own log to the central one."""
