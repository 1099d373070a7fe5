package wire

import "fmt"

// Syndrome is the first byte of an AETH: 000ccccc is an ACK with a credit count, 001ttttt an RNR
// NAK with a timer code, 011nnnnn a NAK (IBTA 9.7.5.1.2).
type Syndrome uint8

// Syndromes. AckNoCredits is an ACK without a credit count: its sender does not use end-to-end flow
// control. RNRNak is combined with the timer code by or.
const (
	AckNoCredits    Syndrome = 0x1f
	RNRNak          Syndrome = 0x20
	NakPSNSequence  Syndrome = 0x60
	NakInvalid      Syndrome = 0x61
	NakRemoteAccess Syndrome = 0x62
	NakRemoteOp     Syndrome = 0x63
	NakInvalidRD    Syndrome = 0x64
	// SelectiveNak is an extension of this project, between NICs that have agreed on selective
	// retransmission: a value of the reserved kind 010. The packet's PSN is the expected one, as in a
	// sequence NAK, and all before it is acknowledged. In place of the MSN, the AETH has the PSN of a
	// request ahead of it that has arrived. The low five bits, combined by or, are how many requests
	// directly before that one have arrived, too.
	SelectiveNak Syndrome = 0x40
	// syndromeKindMask includes bit 7, which is reserved as 0: a syndrome with this bit set is of no
	// known kind (IBTA 9.7.5.1.2/reserved).
	syndromeKindMask Syndrome = 0xe0
)

// IsAck reports whether s is a positive acknowledgement.
func (s Syndrome) IsAck() bool { return s&syndromeKindMask == 0 }

// IsRNR reports whether s is a receiver-not-ready NAK; its timer code is s.Value().
func (s Syndrome) IsRNR() bool { return s&syndromeKindMask == RNRNak }

// IsNak reports whether s is a NAK other than an RNR NAK.
func (s Syndrome) IsNak() bool { return s&syndromeKindMask == NakPSNSequence }

// IsSelective reports whether s is a selective NAK; see SelectiveNak.
func (s Syndrome) IsSelective() bool { return s&syndromeKindMask == SelectiveNak }

// Value returns the low five bits: credit count, timer code, NAK code or, of a selective NAK, a
// number of packets.
func (s Syndrome) Value() uint8 { return uint8(s & 0x1f) }

// nakNames are the NAK codes of IBTA 9.7.5.1.2.
var nakNames = [...]string{"NAK_PSN_SEQ", "NAK_INV_REQ", "NAK_REM_ACCESS", "NAK_REM_OP", "NAK_INV_RD"}

// String prints "ACK", "ACK credits=5", "RNR_NAK timer=12", "NAK_PSN_SEQ" and so on.
func (s Syndrome) String() string {
	switch {
	case s == AckNoCredits:
		return "ACK"
	case s.IsAck():
		return fmt.Sprintf("ACK credits=%d", s.Value())
	case s.IsRNR():
		return fmt.Sprintf("RNR_NAK timer=%d", s.Value())
	case s.IsSelective():
		return fmt.Sprintf("NAK_SELECTIVE run=%d", s.Value())
	case s.IsNak() && int(s.Value()) < len(nakNames):
		return nakNames[s.Value()]
	}
	return fmt.Sprintf("SYNDROME_0x%02x", uint8(s))
}
