"""The machines of SASL: the vectors of the RFCs, what a broker may not do, and what no error may show."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.config import Secret
from gkafka.core.sasl import LONGEST_MASKED, SHORTEST_S, Authentication, Gssapi, Mechanism, OAuthBearer, Plain, masked, renewal_s
from gkafka.core.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, Scram
from gkafka.exceptions import (
    AuthenticationError,
    IllegalSaslState,
    KafkaException,
    ProtocolError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from gkafka.wire.apis import Versions
from gkafka.wire.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse
from tests.kit.clock import PATIENCE_S, now

PASSWORD = "pencil-of-the-user"
NEW, OLD = Versions.for_broker("4.2"), Versions.for_broker("0.11.0")
NONCE = "rOprNGfwEbeRWgbNEkqO"


class Server:
    """The broker's half of SCRAM, as RFC 5802 says it."""

    def __init__(self, scram: Scram, password: str = PASSWORD, iterations: int = 4096) -> None:
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[scram.name]
        self.bare = scram.first().decode().removeprefix("n,,")
        self.nonce = f"{NONCE}3rfcNHYJY1ZVvWVs7j"
        self.first = f"r={self.nonce},s={base64.b64encode(b'salt of sixteen.').decode()},i={iterations}"
        self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), b"salt of sixteen.", min(iterations, 20000))

    def final(self, proven: bytes) -> bytes:
        without_proof = proven.decode().rpartition(",p=")[0]
        key = hmac.digest(self.salted, b"Server Key", self.hash)
        return b"v=" + base64.b64encode(hmac.digest(key, f"{self.bare},{self.first},{without_proof}".encode(), self.hash))


def scram(name: str = "SCRAM-SHA-256", username: str = "user") -> Scram:
    return Scram(name, username, PASSWORD, NONCE)


# -- SCRAM -------------------------------------------------------------------------------------------------------------
def test_scram_sha_256_says_what_rfc_7677_says() -> None:
    machine = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert machine.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proven = machine.respond(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert proven == (b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert not machine.complete
    assert machine.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert machine.complete


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_both_hashes_prove_the_password_and_check_the_broker(name: str) -> None:
    machine = scram(name)
    server = Server(machine)
    proven = machine.respond(server.first.encode())
    assert proven is not None
    assert machine.respond(server.final(proven)) is None
    assert machine.complete


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    machine = scram()
    server, impostor = Server(machine), Server(machine, password="another")
    proven = machine.respond(server.first.encode())
    assert proven is not None
    with pytest.raises(AuthenticationError, match="not the right broker"):
        machine.respond(impostor.final(proven))
    assert not machine.complete


def test_commas_and_equal_signs_of_a_user_are_escaped() -> None:
    assert scram(username="a=b,c").first() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


GOOD = f"r={NONCE}x,s=c2FsdA==,i=4096"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(GOOD.replace(f"{NONCE}x", "somebodyelses"), id="a nonce that is not ours"),
        pytest.param(GOOD.replace(f"{NONCE}x", NONCE), id="a nonce without the broker's part"),
        pytest.param(GOOD.replace(f"{NONCE}x", f"{NONCE} x"), id="a nonce with a blank"),
        pytest.param(GOOD.replace("4096", "4095"), id="too few iterations"),
        pytest.param(GOOD.replace("4096", "1000001"), id="too many iterations"),
        pytest.param(GOOD.replace("4096", "999999999999"), id="a number without end"),
        pytest.param(GOOD.replace("4096", "-1"), id="a negative number"),
        pytest.param(GOOD.replace("4096", "4096 "), id="a number and a blank"),
        pytest.param(GOOD.replace("4096", "٤٠٩٦"), id="digits of another script"),
        pytest.param(GOOD.replace("c2FsdA==", ""), id="no salt"),
        pytest.param(GOOD.replace("c2FsdA==", "c2Fs!!dA=="), id="salt that is no base64"),
        pytest.param(f"m=must,{GOOD}", id="a mandatory extension in front"),
        pytest.param(f"{GOOD},m=must", id="a mandatory extension behind"),
        pytest.param(f"{GOOD},i=4096", id="an attribute twice"),
        pytest.param(f"s=c2FsdA==,r={NONCE}x,i=4096", id="another order"),
        pytest.param(f"r={NONCE}x,s=c2FsdA==", id="no iterations"),
        pytest.param("", id="nothing"),
        pytest.param("e=other-error", id="an error"),
        pytest.param("v=AAAA", id="a signature too early"),
    ],
)
def test_a_first_message_of_the_broker_that_breaks_the_rules_ends_the_exchange(first: str) -> None:
    with pytest.raises(AuthenticationError):
        scram().respond(first.encode())


def test_the_bounds_of_the_iterations_are_those_that_are_promised() -> None:
    assert (FEWEST_ITERATIONS, MOST_ITERATIONS) == (4096, 1_000_000)
    assert scram().respond(f"{GOOD},x=optional".encode()) is not None, "an optional extension is no harm"


@pytest.mark.parametrize("final", ["", "v=", "v=AAAA", "e=invalid-proof", "v=!!", "x=1", "v=AAAA,v=AAAA", GOOD])
def test_a_last_message_that_is_no_proof_ends_the_exchange(final: str) -> None:
    machine = scram()
    machine.respond(Server(machine).first.encode())
    with pytest.raises(AuthenticationError):
        machine.respond(final.encode())
    assert not machine.complete


@given(st.lists(st.binary(max_size=200) | st.text(max_size=80).map(lambda text: f"r={NONCE}{text}".encode()), min_size=1, max_size=3))
def test_whatever_a_broker_says_scram_ends_with_our_error(said: list[bytes]) -> None:
    machine = scram()
    with contextlib.suppress(AuthenticationError):
        for one in said:
            machine.respond(one)
    assert not machine.complete


# -- the other mechanisms ----------------------------------------------------------------------------------------------
def test_plain_says_name_and_password_as_rfc_4616() -> None:
    machine = Plain("tim", "tanstaaftanstaaf")
    assert machine.first() == b"\0tim\0tanstaaftanstaaf"
    assert machine.respond(b"") is None
    assert machine.complete


def test_a_token_goes_out_with_its_extensions_as_kip_342() -> None:
    machine = OAuthBearer("a.b.c", {"logicalCluster": "lkc-1"})
    assert machine.first() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    assert machine.respond(b"") is None
    assert machine.complete


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "a\x01b", "é"])
def test_a_token_that_cannot_be_one_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(AuthenticationError, match="token holds characters"):
        OAuthBearer(token)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"ok": ""}, {"ok": "a\x01b"}])
def test_extensions_that_would_change_the_message_are_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(AuthenticationError, match="extension"):
        OAuthBearer("token", extensions)


@given(st.binary(max_size=300))
def test_whatever_a_broker_says_about_a_token_is_answered_once(said: bytes) -> None:
    machine = OAuthBearer("token")
    assert machine.respond(said) == (b"\x01" if said else None)
    if said:
        with pytest.raises(AuthenticationError):
            machine.respond(said)


class Context:
    """Stands for python-gssapi's SecurityContext: two steps, then wrapping."""

    def __init__(self, offer: bytes = b"\x01\x00\x10\x00") -> None:
        self.complete = False
        self.heard: list[bytes | None] = []
        self.wrapped: list[tuple[bytes, bool]] = []
        self._offer = offer

    def step(self, token: bytes | None = None) -> bytes | None:
        self.heard.append(token)
        self.complete = token is not None
        return None if self.complete else b"ticket"

    def unwrap(self, message: bytes) -> Any:
        return SimpleNamespace(message=self._offer)

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        self.wrapped.append((message, encrypt))
        return SimpleNamespace(message=b"wrapped")


def test_gssapi_steps_until_its_context_is_complete_and_takes_no_security_layer() -> None:
    context = Context()
    machine = Gssapi(context)
    assert [machine.first(), machine.respond(b"mutual"), machine.respond(b"layers")] == [b"ticket", b"", b"wrapped"]
    assert machine.complete
    assert (context.heard, context.wrapped) == ([None, b"mutual"], [(b"\x01\0\0\0", False)])


@pytest.mark.parametrize("offer", [b"", b"\x06\0\0\0", b"\x01\0\0\0\0"])
def test_gssapi_refuses_a_broker_that_wants_a_layer(offer: bytes) -> None:
    machine = Gssapi(Context(offer))
    machine.first()
    machine.respond(b"mutual")
    with pytest.raises(AuthenticationError, match="security layer"):
        machine.respond(b"layers")


# -- the requests ------------------------------------------------------------------------------------------------------
def begun(mechanism: Mechanism, versions: Versions = NEW) -> Authentication:
    authentication = Authentication(mechanism, versions, peer="b:9092")
    assert authentication.begin() == SaslHandshakeRequest(mechanism=mechanism.name)
    return authentication


def test_the_mechanism_speaks_inside_sasl_authenticate() -> None:
    authentication = begun(Plain("u", PASSWORD))
    assert (authentication.newest_version(authentication.begin()), authentication.bare) == (None, False)
    assert authentication.take(SaslHandshakeResponse(mechanisms=["PLAIN"])) == SaslAuthenticateRequest(
        auth_bytes=f"\0u\0{PASSWORD}".encode()
    )
    assert not authentication.done
    assert authentication.take(SaslAuthenticateResponse(session_lifetime_ms=5000)) is None
    assert (authentication.done, authentication.lifetime_ms) == (True, 5000)


def test_brokers_before_1_0_get_bare_messages() -> None:
    authentication = begun(Plain("u", PASSWORD), OLD)
    assert (authentication.newest_version(authentication.begin()), authentication.bare) == (0, True)
    assert authentication.take(SaslHandshakeResponse(mechanisms=["PLAIN"])) == f"\0u\0{PASSWORD}".encode()
    assert not authentication.done
    assert authentication.take(memoryview(b"")) is None
    assert authentication.done


def test_the_last_bare_message_of_gssapi_has_no_answer() -> None:
    authentication = begun(Gssapi(Context()), OLD)
    said = authentication.take(SaslHandshakeResponse())
    for challenge in (b"mutual", b"layers"):
        assert (said is not None, authentication.done) == (True, False)
        said = authentication.take(challenge)
    assert (said, authentication.done) == (b"wrapped", True)


def test_the_last_message_of_gssapi_inside_a_request_is_answered() -> None:
    authentication = begun(Gssapi(Context()))
    authentication.take(SaslHandshakeResponse())
    authentication.take(SaslAuthenticateResponse(auth_bytes=b"mutual"))
    assert authentication.take(SaslAuthenticateResponse(auth_bytes=b"layers")) == SaslAuthenticateRequest(auth_bytes=b"wrapped")
    assert not authentication.done
    assert authentication.take(SaslAuthenticateResponse()) is None
    assert authentication.done


def test_a_mechanism_that_is_not_offered_is_not_replaced_but_told_with_those_that_are() -> None:
    with pytest.raises(UnsupportedSaslMechanism, match=r"'PLAIN' is not offered .*it offers SCRAM-SHA-512, GSSAPI\\x1b") as caught:
        begun(Plain("u", PASSWORD)).take(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512", "GSSAPI\x1b"]))
    assert isinstance(caught.value, AuthenticationError)
    assert not caught.value.retriable
    assert (caught.value.broker, caught.value.api) == ("b:9092", "SaslHandshake")


def test_a_refusal_has_the_brokers_words_but_not_the_password_that_they_repeat() -> None:
    authentication = begun(Plain("u", PASSWORD))
    authentication.take(SaslHandshakeResponse())
    with pytest.raises(SaslAuthenticationFailed, match=r"PLAIN: no such user u with \*\*\*\\n; check the user") as caught:
        authentication.take(SaslAuthenticateResponse(error_code=58, error_message=f"no such user u with {PASSWORD}\n"))
    assert isinstance(caught.value, AuthenticationError)
    assert not caught.value.retriable


@pytest.mark.parametrize("where", [295, 290])
def test_a_secret_at_the_end_of_a_long_text_is_not_shown_in_part(where: int) -> None:
    authentication = begun(Plain("u", PASSWORD))
    authentication.take(SaslHandshakeResponse())
    with pytest.raises(SaslAuthenticationFailed) as caught:
        authentication.take(SaslAuthenticateResponse(error_code=58, error_message="x" * where + PASSWORD + "y" * 500))
    assert PASSWORD[:4] not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_token_is_refused_with_the_reason_that_came_before() -> None:
    authentication = begun(OAuthBearer("a.b.c"))
    authentication.take(SaslHandshakeResponse())
    why = b'{"status": "invalid_token", "scope": "kafka", "openid-configuration": "https://idp"}'
    assert authentication.take(SaslAuthenticateResponse(auth_bytes=why)) == SaslAuthenticateRequest(auth_bytes=b"\x01")
    with pytest.raises(SaslAuthenticationFailed, match="status: invalid_token, scope: kafka, openid-configuration: https://idp"):
        authentication.take(SaslAuthenticateResponse(error_code=58))


def test_other_errors_of_the_broker_are_refusals_too() -> None:
    with pytest.raises(IllegalSaslState):
        begun(Plain("u", PASSWORD)).take(SaslHandshakeResponse(error_code=34))
    for answer in (SaslHandshakeResponse(error_code=-1), SaslHandshakeResponse(error_code=9999)):
        with pytest.raises(AuthenticationError):
            begun(Plain("u", PASSWORD)).take(answer)


def test_a_broker_without_sasl_handshake_is_never_told_a_password() -> None:
    for release in ("0.9.0", "0.8.2"):
        with pytest.raises(UnsupportedVersion, match=r"older than Kafka 0\.10"):
            Authentication(Plain("u", PASSWORD), Versions.for_broker(release), peer="b:9092").begin()


def test_scram_does_not_end_before_the_broker_has_proven_itself() -> None:
    machine = scram()
    authentication = begun(machine)
    authentication.take(SaslHandshakeResponse())
    authentication.take(SaslAuthenticateResponse(auth_bytes=Server(machine).first.encode()))
    with pytest.raises(AuthenticationError):
        authentication.take(SaslAuthenticateResponse(auth_bytes=b""))
    assert not authentication.done


def test_a_challenge_is_bounded() -> None:
    authentication = begun(OAuthBearer("token"))
    authentication.take(SaslHandshakeResponse())
    with pytest.raises(ProtocolError, match="65537 bytes"):
        authentication.take(SaslAuthenticateResponse(auth_bytes=b"x" * 65537))


@given(
    st.sampled_from([lambda: Plain("u", PASSWORD), scram, lambda: OAuthBearer(PASSWORD)]),
    st.lists(
        st.builds(SaslAuthenticateResponse, error_code=st.integers(-1, 120), error_message=st.text() | st.none(), auth_bytes=st.binary())
    ),
)
def test_no_answer_ends_it_otherwise_than_by_our_errors(make: Any, answers: list[SaslAuthenticateResponse]) -> None:
    authentication = begun(make())
    with contextlib.suppress(KafkaException):
        said: Any = authentication.take(SaslHandshakeResponse())
        for answer in answers:
            if said is None:
                break
            said = authentication.take(answer)


def test_nothing_of_the_machines_shows_a_secret() -> None:
    machines = [Plain("u", PASSWORD), scram(), OAuthBearer(PASSWORD, {"a": "b"})]
    for machine in machines:
        machine.first()
        shown = [
            repr(machine),
            repr(machine.secrets),
            *(repr(getattr(machine, name)) for cls in type(machine).__mro__ for name in getattr(cls, "__slots__", ())),
        ]
        assert not any(PASSWORD in text for text in shown), shown


def test_a_session_is_renewed_between_85_and_95_percent_of_it() -> None:
    chance = random.Random(7)
    times = [renewal_s(10_000, chance) or 0.0 for _ in range(500)]
    assert (min(times) >= 8.5, max(times) <= 9.5) == (True, True)
    assert max(times) - min(times) > 0.9, "not all at once"
    assert renewal_s(0, chance) is None
    assert renewal_s(1, chance) == SHORTEST_S, "whatever a broker says"


def test_secrets_that_begin_alike_are_masked_to_their_ends() -> None:
    """A token endpoint is told a secret as it is, and as a form writes it: of the second one the end was left."""
    secrets = [Secret("s3cret of/the+client"), Secret("s3cret+of%2Fthe%2Bclient"), Secret("s3cret of another")]
    assert masked("".join(f"<{secret.reveal()}>" for secret in secrets), secrets) == "<***><***><***>"
    coded = masked(base64.b64encode(b"someone+01:s3cret+of%2Fthe%2Bclient").decode(), secrets)
    assert coded.startswith("c29tZW9uZSswMT***"), "the next character has two bits of the secret"
    assert len(coded) < 22
    assert masked("no s3cret+of%2Fthe%2Bcl here", secrets) == "no *** here"
    assert masked("no s3cret of ano here", secrets) == "no *** here"


@pytest.mark.parametrize("text", ["s3cret/o" * 3_100_000, "s3cret/of the+clien!" * 1_200_000], ids=["beginnings", "nearly whole"])
def test_a_long_text_that_repeats_a_secrets_beginning_is_masked_soon(text: str) -> None:
    begun = now()
    said = masked(text, [Secret("s3cret/of the+client")])
    assert now() - begun < PATIENCE_S
    assert "s3cret" not in said
    assert said.endswith(f"... (cut: it has {len(text)} characters)")


@pytest.mark.parametrize("shown", range(1, 21))
def test_of_a_secret_where_a_long_text_is_cut_nothing_stays(shown: int) -> None:
    secret = "s3cret/of the+client"
    for form in (secret, base64.b64encode(secret.encode()).decode()):
        said = masked("." * (LONGEST_MASKED - shown) + form + "." * 99, [Secret(secret)])
        assert said.startswith("." * (LONGEST_MASKED - shown - 2))
        assert said.partition("... (cut")[0].strip(".") in ("", "***")
    assert masked("." * LONGEST_MASKED, [Secret(secret)]) == "." * LONGEST_MASKED


@pytest.mark.parametrize("secret", ["s3cret/of the+client", 'it"s\\sécret', "short", "x" * 900])
def test_what_a_peer_repeats_of_a_secret_is_masked_however_it_writes_it(secret: str) -> None:
    hidden = [Secret(secret)]
    forms = [secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    for form in forms:
        assert masked(f"not {form} here, nor {form}", hidden) == "not *** here, nor ***"
    for around in (b"", b"\0alice\0", b"al:", b"a"):
        text = masked(base64.b64encode(around + secret.encode() + b"!!").decode(), hidden)
        assert len(secret) < 9 or base64.b64encode(secret.encode())[3:-3].decode() not in text
        assert len(secret) < 9 or "***" in text
    if len(secret) > 12:
        assert masked(f"got {secret[:12]}", hidden) == "got ***"
    assert masked("nothing of it", [*hidden, Secret()]) == "nothing of it"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_no_edge_of_a_secret_in_base64_is_left(encode: Callable[[bytes], bytes]) -> None:
    secret = "s3cret?>of~~the??client"
    for before in range(4):
        for behind in range(4):
            text = encode(b"a" * before + secret.encode() + b"b" * behind).decode().rstrip("=")
            left, _, right = masked(text, [Secret(secret)]).partition("***")
            assert len(left) * 6 <= before * 8, "bits"
            assert len(right) * 6 <= behind * 8 + 4, "four of them may fill the last character"


def test_a_secret_that_was_cut_off_at_its_start_is_masked() -> None:
    secret = Secret("s3cret/of the+client")
    assert masked("...cret/of the+client, no", [secret]) == "...***, no"
    coded = base64.b64encode(secret.reveal().encode() + b"!").decode()
    assert masked(f"...{coded[5:-2]}, no", [secret]).startswith("...***")


@pytest.mark.parametrize("password", ["broker", "p", "somebody"])
def test_a_password_that_is_a_word_of_ours_cannot_be_read_off_its_mask(password: str) -> None:
    """Whoever knows the sentence would see which word is missing. What the broker says is masked."""
    for said, told in (
        ("r=another,s=c2FsdA==,i=4096", "the broker's nonce does not continue ours: somebody else's answer"),
        (f"e=no <{password}>", "the broker refuses: no <***>"),
    ):
        authentication = begun(Scram("SCRAM-SHA-256", "user", password, NONCE))
        with pytest.raises(AuthenticationError) as raised:
            authentication.take(SaslAuthenticateResponse(auth_bytes=said.encode()))
        assert str(raised.value) == f"b:9092: SCRAM-SHA-256: {told}"
