package sendring

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// An entry consists of segments of 16 bytes. All fields are big-endian. Each field has its length
// in bytes behind its name; a length without a name stands for unused bytes:
//
//	control   opmod 1 · index 2 · opcode 1 · QPN 3 · segments 1 · signature 1 · 2 · flags 1 · immediate 4
//	remote    address 8 · R_Key 4 · 4               WRITE, READ, atomics
//	atomic    swap or addend 8 · compare or mask 8   atomics
//	masks     swap mask 8 · compare mask 8           MASKED_CAS
//	data      length 4 · L_Key 4 · address 8         one for each SGE
//	object    8 · count 4 · number 4                 WAIT, ENABLE, RECV_ENABLE
const (
	// BlockSize is the size of a block of the ring in bytes.
	BlockSize = 64
	// MaxSGE is the largest number of data segments of an entry.
	MaxSGE = 16
	// MaxBlocks is the largest number of blocks of an entry.
	MaxBlocks = 5

	segment     = 16
	maxSegments = 3 + MaxSGE
	inlineData  = 1 << 31
)

// Byte offsets of fields in an entry, for programs that modify entries.
const (
	OffIndex    = 1
	OffOpcode   = 3
	OffQPN      = 4
	OffSegments = 7
	OffFlags    = 11
	OffImm      = 12
	OffRemote   = 16
	OffRKey     = 24
	OffSwapAdd  = 32
	OffCompare  = 40
	OffCount    = 24
	OffObject   = 28
)

// Opcode is the operation of an entry. The values are those of mlx5, except for MAX and MIN. mlx5
// selects these calculations by the opmod bits. Here they have opcodes of their own, because
// programs keep an operand in the opmod bits.
type Opcode uint8

// Opcodes.
const (
	NOP            Opcode = 0x00
	SendInv        Opcode = 0x01
	Write          Opcode = 0x08
	WriteImm       Opcode = 0x09
	Send           Opcode = 0x0a
	SendImm        Opcode = 0x0b
	Wait           Opcode = 0x0f
	Read           Opcode = 0x10
	CmpSwap        Opcode = 0x11
	FetchAdd       Opcode = 0x12
	MaskedCmpSwap  Opcode = 0x14
	MaskedFetchAdd Opcode = 0x15
	RecvEnable     Opcode = 0x16
	Enable         Opcode = 0x17
	Max            Opcode = 0x18
	Min            Opcode = 0x19
)

// Flags is the byte fm_ce_se of the control segment: fence, completion, solicited event.
type Flags uint8

// Flags of an entry.
const (
	Solicited Flags = 0x02
	Signalled Flags = 0x08
	Fence     Flags = 0x80
)

// shape says which segments an opcode has.
type shape struct {
	name                   string
	known                  bool
	remote, atomic, object bool
	masks                  bool // the entry has masks, behind the atomic segment
	data                   bool
	calc                   bool // the NIC writes a number that it computes from the data
	op                     verbs.WROpcode
}

// shapes is indexed by opcode.
var shapes = [32]shape{
	NOP:            {name: "NOP", known: true},
	SendInv:        {name: "SEND_INV", known: true, data: true, op: verbs.OpSendInv},
	Write:          {name: "WRITE", known: true, remote: true, data: true, op: verbs.OpWrite},
	WriteImm:       {name: "WRITE_IMM", known: true, remote: true, data: true, op: verbs.OpWriteImm},
	Send:           {name: "SEND", known: true, data: true, op: verbs.OpSend},
	SendImm:        {name: "SEND_IMM", known: true, data: true, op: verbs.OpSendImm},
	Wait:           {name: "WAIT", known: true, object: true},
	Read:           {name: "READ", known: true, remote: true, data: true, op: verbs.OpRead},
	CmpSwap:        {name: "CAS", known: true, remote: true, atomic: true, data: true, op: verbs.OpCmpSwap},
	FetchAdd:       {name: "ADD", known: true, remote: true, atomic: true, data: true, op: verbs.OpFetchAdd},
	MaskedCmpSwap:  {name: "MASKED_CAS", known: true, remote: true, atomic: true, masks: true, data: true, op: verbs.OpMaskedCmpSwap},
	MaskedFetchAdd: {name: "MASKED_ADD", known: true, remote: true, atomic: true, data: true, op: verbs.OpMaskedFetchAdd},
	RecvEnable:     {name: "RECV_ENABLE", known: true, object: true},
	Enable:         {name: "ENABLE", known: true, object: true},
	Max:            {name: "MAX", known: true, remote: true, data: true, calc: true, op: verbs.OpWrite},
	Min:            {name: "MIN", known: true, remote: true, data: true, calc: true, op: verbs.OpWrite},
}

// of returns the shape of an opcode. In the shape of an unknown opcode, known is false.
func (o Opcode) of() *shape {
	if int(o) < len(shapes) {
		return &shapes[o]
	}
	return &shape{}
}

// String returns the name of the opcode, like READ.
func (o Opcode) String() string {
	if s := o.of(); s.known {
		return s.name
	}
	return fmt.Sprintf("opcode %#02x", uint8(o))
}

// Control reports whether the NIC executes the opcode without its peer: NOP, WAIT, ENABLE,
// RECV_ENABLE.
func (o Opcode) Control() bool { return o == NOP || o == Wait || o == Enable || o == RecvEnable }

// Answered reports whether the opcode completes when a response with data arrives: READ and
// atomics. A fence waits for these.
func (o Opcode) Answered() bool { return o == Read || o.of().atomic }

// Entry is a parsed entry.
type Entry struct {
	OpMod uint8
	Index uint16
	Op    Opcode
	QPN   wire.QPN
	// Segments is the number of 16-byte segments. AppendTo computes it, except for a NOP, which may
	// have any number: 0 then means 1.
	Segments   uint8
	Flags      Flags
	Imm        uint32 // immediate data, or the key of SEND_INV
	RemoteAddr uint64
	RKey       uint32
	SwapAdd    uint64 // swap value or addend
	Compare    uint64 // compare value, or the field boundaries of MASKED_ADD
	SwapMask   uint64 // for MASKED_CAS: SwapMask has the bits that are swapped, CmpMask those that are compared
	CmpMask    uint64
	Count      uint32 // of WAIT: number of completions; of ENABLE and RECV_ENABLE: index
	Object     uint32 // of WAIT: number of a completion queue; of ENABLE and RECV_ENABLE: number of a queue pair
	SGL        [MaxSGE]verbs.SGE
	NSGE       int
}

// Errors of Parse.
var (
	ErrOpcode   = errors.New("unknown opcode")
	ErrSegments = errors.New("the number of segments does not fit the opcode")
	ErrInline   = errors.New("inline data is not supported")
	ErrShort    = errors.New("the entry is cut off")
)

// Blocks returns the number of blocks of the entry that begins with b. b has at least 8 bytes.
func Blocks(b []byte) int {
	return max(1, (int(b[OffSegments]&0x3f)*segment+BlockSize-1)/BlockSize)
}

// Parse reads the entry in b. It ignores the segments of a NOP behind the control segment.
func Parse(b []byte, e *Entry) error {
	if len(b) < segment {
		return ErrShort
	}
	*e = Entry{
		OpMod: b[0], Index: binary.BigEndian.Uint16(b[OffIndex:]), Op: Opcode(b[OffOpcode]),
		QPN: wire.QPN(b[4])<<16 | wire.QPN(b[5])<<8 | wire.QPN(b[6]), Segments: b[OffSegments] & 0x3f,
		Flags: Flags(b[OffFlags]), Imm: binary.BigEndian.Uint32(b[OffImm:]),
	}
	s := e.Op.of()
	n := int(e.Segments)
	switch {
	case !s.known:
		return ErrOpcode
	case n == 0 || n > maxSegments:
		return ErrSegments
	case len(b) < n*segment:
		return ErrShort
	case e.Op == NOP:
		return nil
	}
	b = b[segment : n*segment]
	need := func(want bool) []byte {
		if !want || len(b) < segment {
			return nil
		}
		seg := b[:segment]
		b = b[segment:]
		return seg
	}
	if fixed := flag(s.remote) + flag(s.atomic) + flag(s.masks) + flag(s.object); n-1 < fixed || !s.data && n-1 != fixed {
		return ErrSegments
	}
	if seg := need(s.object); seg != nil {
		e.Count, e.Object = binary.BigEndian.Uint32(seg[8:]), binary.BigEndian.Uint32(seg[12:])
	}
	if seg := need(s.remote); seg != nil {
		e.RemoteAddr, e.RKey = binary.BigEndian.Uint64(seg), binary.BigEndian.Uint32(seg[8:])
	}
	if seg := need(s.atomic); seg != nil {
		e.SwapAdd, e.Compare = binary.BigEndian.Uint64(seg), binary.BigEndian.Uint64(seg[8:])
	}
	if seg := need(s.masks); seg != nil {
		e.SwapMask, e.CmpMask = binary.BigEndian.Uint64(seg), binary.BigEndian.Uint64(seg[8:])
	}
	for seg := need(s.data); seg != nil; seg = need(s.data) {
		if e.NSGE == MaxSGE {
			return ErrSegments
		}
		length := binary.BigEndian.Uint32(seg)
		if length&inlineData != 0 {
			return ErrInline
		}
		e.SGL[e.NSGE] = verbs.SGE{Length: length, LKey: binary.BigEndian.Uint32(seg[4:]), Addr: binary.BigEndian.Uint64(seg[8:])}
		e.NSGE++
	}
	return nil
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (e *Entry) segments() int {
	s := e.Op.of()
	if e.Op == NOP {
		return max(1, int(e.Segments))
	}
	n := 1 + flag(s.remote) + flag(s.atomic) + flag(s.masks) + flag(s.object)
	if s.data {
		n += e.NSGE
	}
	return n
}

// Len returns the length of the entry in bytes, a multiple of BlockSize.
func (e *Entry) Len() int {
	return (e.segments()*segment + BlockSize - 1) / BlockSize * BlockSize
}

// AppendTo appends the bytes of the entry. A NOP also gets the remote and data segments if its
// number of segments includes them. So it becomes a complete WRITE when its opcode changes.
func (e *Entry) AppendTo(b []byte) []byte {
	start, n := len(b), e.segments()
	s := *e.Op.of()
	sges := e.NSGE
	if e.Op == NOP && n > 1 {
		s.remote, s.data = true, true
		sges = min(sges, n-2)
	}
	b = append(b, e.OpMod)
	b = binary.BigEndian.AppendUint16(b, e.Index)
	b = append(b, byte(e.Op), byte(e.QPN>>16), byte(e.QPN>>8), byte(e.QPN), byte(n), 0, 0, 0, byte(e.Flags))
	b = binary.BigEndian.AppendUint32(b, e.Imm)
	put := func(present bool, first, second uint64) {
		if present {
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, first), second)
		}
	}
	put(s.object, 0, uint64(e.Count)<<32|uint64(e.Object))
	put(s.remote, e.RemoteAddr, uint64(e.RKey)<<32)
	put(s.atomic, e.SwapAdd, e.Compare)
	put(s.masks, e.SwapMask, e.CmpMask)
	for _, sge := range e.SGL[:sges] {
		put(s.data, uint64(sge.Length)<<32|uint64(sge.LKey), sge.Addr)
	}
	return append(b, make([]byte, e.Len()-(len(b)-start))...)
}

// workRequest returns the work request for an entry that needs the peer. id becomes its ID, and sgl
// its scatter/gather list.
func (e *Entry) workRequest(id uint64, sgl []verbs.SGE) verbs.SendWR {
	wr := verbs.SendWR{
		ID: id, Op: e.Op.of().op, Flags: verbs.Signalled, SGL: sgl, Imm: e.Imm, RemoteAddr: e.RemoteAddr, RKey: e.RKey,
	}
	if e.Flags&Solicited != 0 {
		wr.Flags |= verbs.Solicited
	}
	switch e.Op {
	case SendInv:
		wr.Imm, wr.InvRKey = 0, e.Imm
	case CmpSwap:
		wr.Swap, wr.CompareAdd = e.SwapAdd, e.Compare
	case FetchAdd:
		wr.CompareAdd = e.SwapAdd
	case MaskedCmpSwap:
		wr.Swap, wr.CompareAdd, wr.SwapMask, wr.CompareAddMask = e.SwapAdd, e.Compare, e.SwapMask, e.CmpMask
	case MaskedFetchAdd:
		wr.CompareAdd, wr.CompareAddMask = e.SwapAdd, e.Compare
	default:
	}
	return wr
}
