"""What a Kerberos library's error means, and what to do next. The library itself is python-gssapi, which only `credentials` loads.

Source: RFC 2744 (major codes), RFC 4120 section 7.5.9 and MIT's krb5.h (minor codes)
"""

from __future__ import annotations

__all__ = ["next_step"]

TICKET = "get a ticket with kinit, or have KRB5_CLIENT_KTNAME name a keytab, where this process sees it (KRB5CCNAME)"
SERVICE = (
    "the broker's principal is sasl_kerberos_service_name/host: compare with its keytab, and give sasl_kerberos_domain_name if it is another"
    " host than the one that is connected to"
)
CLOCKS = "set the clocks of this machine, the broker and the KDC right"
REALM = "see the realm and its KDC in krb5.conf (KRB5_CONFIG)"

# By what is told apart: the library's minor codes as the unsigned numbers that it shows.
MINOR = {
    2529638919: SERVICE,  # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN
    2529638944: TICKET,  # KRB5KRB_AP_ERR_TKT_EXPIRED
    2529638949: CLOCKS,  # KRB5KRB_AP_ERR_SKEW
    2529639066: REALM,  # KRB5_REALM_UNKNOWN
    2529639068: REALM,  # KRB5_KDC_UNREACH
    2529639129: REALM,  # KRB5_ERR_HOST_REALM_UNKNOWN
    2529639132: REALM,  # KRB5_REALM_CANT_RESOLVE
}
MAJOR = {7: TICKET, 11: TICKET}  # GSS_S_NO_CRED, GSS_S_CREDENTIALS_EXPIRED


def next_step(error: BaseException) -> str:
    """What to try after an error of a Kerberos library: by its `maj_code` and `min_code`, if it has them."""
    major, minor = (getattr(error, name, None) for name in ("maj_code", "min_code"))
    known = MINOR.get(minor & 0xFFFFFFFF) if isinstance(minor, int) else None
    if known is None and isinstance(major, int):
        known = MAJOR.get(major >> 16 & 0xFF)
    return known or "try `kinit` and `kvno service/host` in this process's environment; KRB5_TRACE=/dev/stderr tells each step"
