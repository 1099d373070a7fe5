package ring

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Sizes and limits of the rings.
const (
	// MaxPosts is the largest number of entries in a ring of work requests. The application posts
	// longer lists in parts.
	MaxPosts = 64
	// MaxCompletions is the largest number of entries in the ring of a completion queue. The NIC
	// keeps further completions, up to the depth of its own queue.
	MaxCompletions = 4096

	sendHeader = 64 // bytes of a send before its SGEs or inline data
	recvHeader = 16 // bytes of a receive before its SGEs
	sgeLen     = 16 // bytes of an SGE
	// WCSlot is the size of a completion in bytes.
	WCSlot = 64
	// AccessSlot is the size of an entry in the ring of memory accesses, in bytes; Accesses is the
	// number of entries of this ring.
	AccessSlot = 64
	Accesses   = 8
)

var le = binary.LittleEndian

// SendSlot returns the size of a send work request in a ring with these limits, in bytes. The entry
// has room for one SGE or one inline byte more than allowed: so the NIC sees that a request has too
// many, and refuses it with the right error.
func SendSlot(maxSGE, maxInline int) int {
	return (sendHeader + max((maxSGE+1)*sgeLen, maxInline+1) + 63) &^ 63
}

// RecvSlot returns the size of a receive in bytes. Like a send, it has room for one SGE more than
// allowed.
func RecvSlot(maxSGE int) int { return (recvHeader + (maxSGE+1)*sgeLen + 63) &^ 63 }

// PutSend writes a work request into a slot. ah is the daemon's handle (proto.Address.H) of its
// address handle; 0 means none. If the request has more SGEs or inline bytes than allowed, PutSend
// writes only one more than allowed, so that the daemon refuses the request.
func PutSend(b []byte, wr *verbs.SendWR, ah uint32) {
	le.PutUint64(b[0:], wr.ID)
	le.PutUint64(b[8:], wr.RemoteAddr)
	le.PutUint64(b[16:], wr.CompareAdd)
	le.PutUint64(b[24:], wr.Swap)
	b[32], b[33], b[34], b[35] = uint8(wr.Op), uint8(wr.Flags), uint8(wr.BindAccess), 0
	n := 0
	if wr.Flags&verbs.Inline != 0 {
		n = copy(b[sendHeader:], wr.Data)
		if len(wr.SGL) > 0 {
			b[35] = 0xff // both inline data and an SGL: the NIC refuses such a request
		}
	} else {
		b[35] = uint8(putSGL(b[sendHeader:], wr.SGL))
	}
	le.PutUint32(b[36:], uint32(n))
	le.PutUint32(b[40:], wr.Imm)
	le.PutUint32(b[44:], wr.InvRKey)
	le.PutUint32(b[48:], wr.RKey)
	le.PutUint32(b[52:], ah)
	le.PutUint32(b[56:], uint32(wr.RemoteQPN))
	le.PutUint32(b[60:], wr.RemoteQKey)
	if wr.Op == verbs.OpFlush {
		le.PutUint32(b[40:], wr.Flush.Length)
		b[44] = bit(wr.Flush.Region, flushRegion) | bit(wr.Flush.Global, flushGlobal) | bit(wr.Flush.Persistent, flushPersistent)
	}
	if masked(wr.Op) {
		le.PutUint64(b[40:], wr.SwapMask)
		le.PutUint64(b[56:], wr.CompareAddMask)
	}
}

// early is the bit in the length field of an entry that MarkEarly sets.
const early = 1 << 31

// MarkEarly marks an entry whose post returns before the daemon has taken the entry. If such a work
// request is refused, the daemon completes it with an error, because the post no longer waits for a
// refusal.
func MarkEarly(slot []byte) { le.PutUint32(slot[36:], le.Uint32(slot[36:])|early) }

// Early reports whether MarkEarly has marked the entry that Send has copied into buf.
func Early(buf []byte) bool { return le.Uint32(buf[36:])&early != 0 }

// Flags of an OpFlush. In its entry, the length of the FLUSH is in the field for immediate data,
// and these flags are in the field for the R_Key to invalidate.
const (
	flushRegion = 1 << iota
	flushGlobal
	flushPersistent
)

func bit(set bool, b uint8) uint8 {
	if set {
		return b
	}
	return 0
}

// masked reports whether op is an atomic with masks. In its entry, the masks are in the fields that
// other operations use for immediate data, the R_Key to invalidate, and the peer's queue pair and
// Q_Key.
func masked(op verbs.WROpcode) bool {
	return op == verbs.OpMaskedCmpSwap || op == verbs.OpMaskedFetchAdd
}

// both is the SGL that Send returns for an entry with both inline data and an SGL, so that the NIC
// refuses it.
var both = make([]verbs.SGE, 1)

// Send reads a work request from a slot. It copies each byte once, into buf, which is as long as
// the slot. It puts the SGL of wr into sges; inline data of wr are in buf. ok is false if the entry
// is malformed.
func Send(slot, buf []byte, wr *verbs.SendWR, sges []verbs.SGE) (ah uint32, ok bool) {
	copy(buf[:sendHeader], slot)
	n, nsge := int(le.Uint32(buf[36:])&^early), int(buf[35])
	*wr = verbs.SendWR{
		ID: le.Uint64(buf[0:]), RemoteAddr: le.Uint64(buf[8:]), CompareAdd: le.Uint64(buf[16:]), Swap: le.Uint64(buf[24:]),
		Op: verbs.WROpcode(buf[32]), Flags: verbs.SendFlags(buf[33]), BindAccess: verbs.Access(buf[34]),
		Imm: le.Uint32(buf[40:]), InvRKey: le.Uint32(buf[44:]), RKey: le.Uint32(buf[48:]),
		RemoteQPN: wire.QPN(le.Uint32(buf[56:]) & 0xffffff), RemoteQKey: le.Uint32(buf[60:]),
	}
	ah = le.Uint32(buf[52:])
	if masked(wr.Op) {
		wr.SwapMask, wr.CompareAddMask = le.Uint64(buf[40:]), le.Uint64(buf[56:])
		wr.Imm, wr.InvRKey, wr.RemoteQPN, wr.RemoteQKey = 0, 0, 0, 0
	}
	if wr.Op == verbs.OpFlush {
		how := buf[44]
		wr.Flush = verbs.Flush{Length: wr.Imm, Region: how&flushRegion != 0, Global: how&flushGlobal != 0, Persistent: how&flushPersistent != 0}
		wr.Imm, wr.InvRKey = 0, 0
	}
	if wr.Flags&verbs.Inline != 0 {
		if n > len(slot)-sendHeader {
			return 0, false
		}
		copy(buf[sendHeader:sendHeader+n], slot[sendHeader:])
		wr.Data = buf[sendHeader : sendHeader+n : sendHeader+n]
		if nsge != 0 {
			wr.SGL = both
		}
		return ah, true
	}
	if nsge > len(sges) || sendHeader+nsge*sgeLen > len(slot) {
		return 0, false
	}
	copy(buf[sendHeader:sendHeader+nsge*sgeLen], slot[sendHeader:])
	wr.SGL = getSGL(buf[sendHeader:], sges[:nsge])
	return ah, true
}

func PutRecv(b []byte, wr *verbs.RecvWR) {
	le.PutUint64(b[0:], wr.ID)
	le.PutUint32(b[8:], uint32(putSGL(b[recvHeader:], wr.SGL)))
}

// Recv reads a receive from a slot. It copies each byte once, into buf, which is as long as the
// slot, and puts the SGL into sges. It returns false if the entry is malformed.
func Recv(slot, buf []byte, wr *verbs.RecvWR, sges []verbs.SGE) bool {
	copy(buf[:recvHeader], slot)
	n := le.Uint32(buf[8:])
	if uint64(n) > uint64(len(sges)) || recvHeader+int(n)*sgeLen > len(slot) {
		return false
	}
	copy(buf[recvHeader:recvHeader+int(n)*sgeLen], slot[recvHeader:])
	*wr = verbs.RecvWR{ID: le.Uint64(buf[0:]), SGL: getSGL(buf[recvHeader:], sges[:n])}
	return true
}

// putSGL writes as many SGEs as fit into b and returns their number.
func putSGL(b []byte, sgl []verbs.SGE) int {
	n := min(len(sgl), len(b)/sgeLen, 254)
	for i := range n {
		le.PutUint64(b[i*sgeLen:], sgl[i].Addr)
		le.PutUint32(b[i*sgeLen+8:], sgl[i].Length)
		le.PutUint32(b[i*sgeLen+12:], sgl[i].LKey)
	}
	return n
}

func getSGL(b []byte, sges []verbs.SGE) []verbs.SGE {
	for i := range sges {
		sges[i] = verbs.SGE{Addr: le.Uint64(b[i*sgeLen:]), Length: le.Uint32(b[i*sgeLen+8:]), LKey: le.Uint32(b[i*sgeLen+12:])}
	}
	return sges
}

func PutWC(b []byte, wc *verbs.WC) {
	le.PutUint64(b[0:], wc.ID)
	b[8], b[9], b[10], b[11] = uint8(wc.Status), uint8(wc.Opcode), uint8(wc.Flags), bit(wc.Solicited, 1)
	le.PutUint32(b[12:], wc.ByteLen)
	le.PutUint32(b[16:], wc.Imm)
	le.PutUint32(b[20:], wc.InvRKey)
	le.PutUint32(b[24:], uint32(wc.QPN))
	le.PutUint32(b[28:], uint32(wc.SrcQPN))
	le.PutUint32(b[32:], wc.VendorErr)
}

func WC(b []byte) verbs.WC {
	return verbs.WC{
		ID: le.Uint64(b[0:]), Status: verbs.Status(b[8]), Opcode: verbs.WCOpcode(b[9]), Flags: verbs.WCFlags(b[10]), Solicited: b[11] != 0,
		ByteLen: le.Uint32(b[12:]), Imm: le.Uint32(b[16:]), InvRKey: le.Uint32(b[20:]), QPN: wire.QPN(le.Uint32(b[24:])),
		SrcQPN: wire.QPN(le.Uint32(b[28:])), VendorErr: le.Uint32(b[32:]),
	}
}

// Access is a load or store of a word of a region, which the daemon executes between two accesses
// of the NIC. MR is the handle of the region, Offset the offset of the word in the region in bytes,
// and Value the word to store.
type Access struct {
	Store  bool
	MR     uint32
	Offset int64
	Value  uint64
}

func PutAccess(b []byte, a Access) {
	le.PutUint64(b[0:], uint64(a.Offset))
	le.PutUint64(b[8:], a.Value)
	le.PutUint32(b[16:], a.MR)
	b[20] = bit(a.Store, 1)
}

// GetAccess reads an access from a slot, once.
func GetAccess(slot []byte) Access {
	var b [24]byte
	copy(b[:], slot)
	return Access{Offset: int64(le.Uint64(b[0:])), Value: le.Uint64(b[8:]), MR: le.Uint32(b[16:]), Store: b[20] != 0}
}
