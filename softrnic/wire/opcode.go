package wire

// Opcode is the BTH opcode: the transport service in the top three bits, the operation in the low five
// (IBTA vol. 1, table 38).
type Opcode uint8

// Transport services, as the top three bits of an opcode.
const (
	ServiceRC  Opcode = 0x00
	ServiceUC  Opcode = 0x20
	ServiceRD  Opcode = 0x40 // reserved in RoCEv2; not decoded
	ServiceUD  Opcode = 0x60
	ServiceCNP Opcode = 0x80
	ServiceXRC Opcode = 0xa0 // not decoded
)

// Opcodes of the reliable connection service.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImm       Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAck                Opcode = 0x11
	RCAtomicAck          Opcode = 0x12
	RCCmpSwap            Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
)

// Opcodes of the unreliable connection service.
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2a
	UCWriteOnlyImm Opcode = 0x2b
)

// Opcodes of the unreliable datagram service, and congestion notification (A17.9).
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
	CNP           Opcode = 0x81
)

// Syndrome is the first byte of an AETH: 000ccccc is an ACK with a credit count, 001ttttt an RNR NAK with a
// timer code, 011nnnnn a NAK (IBTA vol. 1, 9.7.5.1.2).
type Syndrome uint8

// Syndromes. AckNoCredits says that no end-to-end credits are given; RNRNak is or-ed with the timer code.
const (
	AckNoCredits     Syndrome = 0x1f
	RNRNak           Syndrome = 0x20
	NakPSNSequence   Syndrome = 0x60
	NakInvalid       Syndrome = 0x61
	NakRemoteAccess  Syndrome = 0x62
	NakRemoteOp      Syndrome = 0x63
	NakInvalidRD     Syndrome = 0x64
	syndromeKindMask Syndrome = 0x60
)

// IsAck reports a positive acknowledgement.
func (s Syndrome) IsAck() bool { return s&syndromeKindMask == 0 }

// IsRNR reports a receiver-not-ready NAK; its timer code is s.Value().
func (s Syndrome) IsRNR() bool { return s&syndromeKindMask == RNRNak }

// IsNak reports a NAK that is no RNR NAK.
func (s Syndrome) IsNak() bool { return s&syndromeKindMask == NakPSNSequence }

// Value is the low five bits: credit count, timer code or NAK code.
func (s Syndrome) Value() uint8 { return uint8(s & 0x1f) }
