"""Digests what pyarrow reads from a few small files, to compare two versions of pyarrow.

The files were made once, by pyarrow 26, so that every version reads the same bytes. They hold each way in which writers
keep texts (plain, dictionary, both kinds of delta, two kinds of pages and of compression, in a struct), nulls, empty
texts, and bytes that are not UTF-8. They are read by the reader that a run uses: 20 ms, without the import of pyarrow.
"""

from __future__ import annotations

import io
import json
from base64 import b85decode
from hashlib import sha256

from tokenization_worker.readers.document_batch import CorruptFileError
from tokenization_worker.readers.parquet.reader import read_parquet

_MOST_BYTES = 1 << 20

_FILES = {
    "plain": (
        "P(e~L6#x}(6>cmQ4ix|u1{DSz000020000E0RsR40B>$(0{{R3ba!tB0001EVP?ar1ONa4@SmoN0{{R3VE|$P000030001QZe<k&87wsb7"
        "zT4=Xk~3-6#@Vi3?%{>1axJ1bR_^x8~^|S77iI485|}692E>1B?bT)7zA`>cytv277iAa0Tz@2CJ0F!6#x|g6#@V}7AhGA872S@0000Mlm"
        "QkFCI}Xk0RSi<aA9(Bb!BudV{mXSVRCYBcOZ6Ua&u{KZXhx?E-)@J85|q{004{t002-yQZW"
    ),
    "plain with nulls": (
        "P(e~L6#x}*6>uyS5)}Xy1{DSz0000300005{s032003`pWdi^J0Cab61poj5V_{~)sRRH30PvrtiUR-u0AT=P000000{{R3Z*FB31Q{$f0"
        "2l^yV`yb<VHE-Z6$~W;7zA`>cyuKIOdJ3J02UG%92p!Y02~zz86^e)85jg~Wq5QI02UG!mH`%)0VW7Z92Ec+02KlNJQgY$1{o#<4gdfE7M"
        "1}P5+(>1mH_}LAaG%Fadl;MEn{$SEn#wUZ+9SeWpZ<AZ*CwmHZCwOF&P{j0001t0000`K~ga"
    ),
    "bytes that are not UTF-8": (
        "P(e~L6#x}r6<{nC3>5$s1{DSz000020000C0RjL30B>sn000300{{R3?Vx}H0002MfCT^m0Apch!>I)T003ikbmo^81Q{$f02l^yV`yb<V"
        "HE-Z6$~W;7zA`>cys_33>h3593}u96$}|A1^^it1axJ1bQJ&=3>Jm~7KQ;P2uU0j02Kfg0suS~BpC)7CIAco000(-0Tv7<2o{C`04N}EVR"
        "CVGWppiLaBwYQa&m8XAa-SPb7^mGATl;CFfK6}92@`u0EPen08l|vF#"
    ),
    "dictionary": (
        "P(e~L6$BMj6;w<W3>5$p00093003`pWdi^J0Cab61poj5V_{~)sRRH30PvrtiUR-u0AT=P000006#x|?6(TGZDishF1{DSz000020000g0"
        "Rsn!#sbk;AQ}q*6$BY9H2@d}b7N>_ZDADx02K@+0vH5zWq5QY08AVJ000&$85|iLCIB223>h^51`rt-1axJ1bQJ&=Di*i_7PtW>cqRxbEE"
        "NP502KlN6#x|w6#@V}7JeB9872TK0000MxB(U_CI}X|0RSi<aA9(Bb!BudV{mXSVRCYBcOZ6Ua&u{KZXhx?E-)@J85|q{005Q%002-yQZW"
    ),
    "dictionary with nulls": (
        "P(e~L6$BMj6;w<W3>5$p00093003`pWdi^J0Cab61poj5V_{~)sRRH30PvrtiUR-u0AT=P000006#x|`6(%edFclCL1{DSz0000400007{"
        "{H?02Z+W3(O4iF3jh@a87wsb7zT4=Xk~3-6#@Vi3?%{>1axJ1bR_^x8~^|S7BCqc85|}692E>1H2?+>85jg~Wq5QI02VM7ya5)x0Va4R2q"
        "`QT1Qh@k0ss{N6%Z8y06Z3c83q|91}Xpm02aIf7BD6V7Q6ufC?IfQa&dKKbS-0Wa4lhSa&LDac4cyNX>V>IGBz$SE-@J#8~^|SmH+?%P(e"
        "~L"
    ),
    "delta lengths": (
        "P(e~L6#x}t6=EzE4iyX)1{DSz000020000E0e}Gn2L=TL000211Oos7000000001QZe?_LZ)0I*!>RC}rix(zVsCC`6$BY9H2@d}b7N>_Z"
        "DADx02K@+0vH5zWq5QY08AVJ000&a85|iLCIB223>hT`3>g>%bY*yS6#y0v7Ki~Bhyf-DNgNdb6$}*u06Z2d83q|901f~E02YV=77iu|7K"
        "i}=C?IfQa&dKKbS-0Wa4lhSa&LDac4cyNX>V>IGBz$SE-@J#8~^|Si~s-tP(e~L"
    ),
    "delta": (
        "P(e~L6$TY<6>eM=4ix|u4iyd+1Qh@h8~^|S4gr7x1P1^B00000fB^&t1_c8E006550{{R300000003`pWpsCMV_{~)sqmksieUg^Z*FB31"
        "Q{$f02l^yV`yb<VHE-Z6$~W;7zA`>cyuKIOdJ3J02U4z92p!Y02~zz86^e|85jg~Wq5QI02U4wo&gq~0VW7Z92Ec+4iy3bJQgY$1{o#*4g"
        "dfE7M=kX4kic|o&f+TAaG%Fadl;MEn{$SEn#wUZ+9SeWpZ<AZ*CwmHZCwOF&P{j0001t0000`K~ga"
    ),
    "snappy": (
        "P(e~L6#x~K0~LNO6*v_D6$TXs8~^|S$^kF}0000u0RsR40B>$(0S8QUcW(s%003iQX2Yoj0002+pQefd7#LvyVgLXD009dPDh&tzF#!HC0"
        "1+`21Q{$f02l^yV`yb<VHE-Z6$~W;7zA`>cyuKIOdJ3J02VkI92p!Y02~zz86^e)85jg~Wq5QI0v0$HyaN`d0VW7Z92Ec+02KlNJQk<{83"
        "q|905|{u02aIh7C0sd7N!9JC?IfQa&dKKbS-0Wa4lhSa&LDac4cyNX>V>IGBz$SE-@J#8~^|SjQ{`uP(e~L"
    ),
    "zstd": (
        "P(e~L6$TZI0~LS)TopJK02MeD02Krk01+Gj001}vD77#BAjGW!0Hgu~0001QZe;@i004A%Zv_AV0Apch!>I%S008ixriudq003bCVgLXD0"
        "0ICEswhx1R2dZn87wsb7zT4=Xk~3-6#@Vi3?%{>1axJ1bR_^x8~^|S7C0Fk85|}692E>1B?bT)7zA`>cytvE7C08b0~WLaCJ0F!6#x|g6#"
        "@V}7N`Lk1{o#*H~;_u7Qh1*I3@@dv;hDpAaG%Fadl;MEn{$SEn#wUZ+9SeWpZ<AZ*CwmHZCwOF&P{j0001u0000`K~ga"
    ),
    "struct": (
        "P(e~L6#x|?6(TGZ2o(So1{DSz0000300003k^lh!004La0001a6$BYPH2@d}b7N>_ZDADx05t*_1axJ1bQJ;s6$~W;7y)4=08AVJ000&U8"
        "5|iLCIB223>hT`02wF*bY*yS0bvyY76=wd7Dy%tNgNdb6#x|i06Z2183q|P0s;g8000(976>K?7DxanAaG%Fadl;MEn{$SEn#wUZ+9SeWp"
        "Z<AZ*CwmHZCwOF&P{j0001!0000`K~ga"
    ),
}
"""By what they hold, in base 85. Their text is at `text`, of the struct at `text.a`."""


def parquet_digest() -> str:
    """Of what this process reads of the files; equal where it is. Raises `SpecError` where pyarrow is missing."""
    answers = [_answer(name) for name in _FILES]
    return sha256(json.dumps(answers).encode()).hexdigest()[:16]


def _answer(name: str) -> object:
    """The texts of a file with their rows, and the rows that hold none with the reason."""
    data = sample_file(name)
    texts: list[tuple[int, str]] = []
    refused: list[tuple[int, str]] = []
    try:
        for batch in read_parquet(io.BytesIO(data), len(data), 0, -1, field_of(name), _MOST_BYTES):
            texts += zip(batch.positions.tolist(), batch.texts, strict=True)
            refused += ((item.position, str(item.reason)) for item in batch.rejected)
    except CorruptFileError as damage:
        return str(damage.outcome)
    return texts, refused


def sample_file(name: str) -> bytes:
    """The bytes of a file."""
    return b85decode(_FILES[name])


def field_of(name: str) -> str:
    """Where its text is."""
    return "text.a" if name == "struct" else "text"
