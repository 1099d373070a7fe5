package dump

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// line is the JSON object of a packet, without the headers that the packet does not have.
type line struct {
	File      string    `json:"file,omitempty"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	Interface string    `json:"interface,omitempty"`
	Length    int       `json:"length"`
	Comments  []string  `json:"comments,omitempty"`
	Kind      string    `json:"kind"` // roce, malformed or other
	Error     string    `json:"error,omitempty"`
	Dispute   string    `json:"dispute,omitempty"` // result of --verify

	SrcMAC  wire.MAC   `json:"srcMac"`
	DstMAC  wire.MAC   `json:"dstMac"`
	VLAN    *uint16    `json:"vlan,omitempty"`
	Src     netip.Addr `json:"src,omitzero"`
	Dst     netip.Addr `json:"dst,omitzero"`
	TOS     uint8      `json:"tos,omitempty"`
	TTL     uint8      `json:"ttl,omitempty"`
	IPID    *uint16    `json:"ipId,omitempty"`
	SrcPort uint16     `json:"srcPort,omitempty"`

	*transport
}

// transport has the headers and payload behind UDP.
type transport struct {
	Opcode    wire.Opcode `json:"opcode"`
	DestQP    wire.QPN    `json:"destQp"`
	PSN       wire.PSN    `json:"psn"`
	PKey      hex         `json:"pkey"`
	AckReq    bool        `json:"ackReq,omitempty"`
	Solicited bool        `json:"solicited,omitempty"`
	MigReq    bool        `json:"migReq,omitempty"`
	FECN      bool        `json:"fecn,omitempty"`
	BECN      bool        `json:"becn,omitempty"`
	Payload   int         `json:"payload"`
	Pad       uint8       `json:"pad,omitempty"`

	SRQN      *uint32 `json:"srqn,omitempty"` // XRCETH: the shared receive queue
	RETH      *reth   `json:"reth,omitempty"`
	AtomicETH *atomic `json:"atomicEth,omitempty"`
	AETH      *aeth   `json:"aeth,omitempty"`
	DETH      *deth   `json:"deth,omitempty"`
	AtomicAck *hex    `json:"atomicAck,omitempty"`
	Immediate *hex    `json:"immediate,omitempty"`
	InvRKey   *hex    `json:"invalidateRkey,omitempty"`
	sum
}

// sum is what a packet ends with.
type sum struct {
	ICRC      Verdict `json:"icrc"` // ok, bad or cut
	ICRCValue hex     `json:"icrcValue"`
}

type reth struct {
	VA     hex    `json:"va"`
	RKey   hex    `json:"rkey"`
	Length uint32 `json:"length"`
	// Selectivity and Placement are set for a FLUSH only.
	Selectivity *hex `json:"selectivity,omitempty"`
	Placement   *hex `json:"placement,omitempty"`
}

type atomic struct {
	VA        hex `json:"va"`
	RKey      hex `json:"rkey"`
	SwapOrAdd hex `json:"swapOrAdd"`
	Compare   hex `json:"compare"`
	// SwapMask and CompareOrBoundary are set for masked atomics only.
	SwapMask          *hex `json:"swapMask,omitempty"`
	CompareOrBoundary *hex `json:"compareMaskOrBoundary,omitempty"`
}

type aeth struct {
	Syndrome string `json:"syndrome"`
	Code     uint8  `json:"code"`
	MSN      uint32 `json:"msn"`
}

type deth struct {
	QKey  hex      `json:"qkey"`
	SrcQP wire.QPN `json:"srcQp"`
}

// hex is a number as text like "0x1f": addresses, keys and operands have 64 bits, and JSON readers
// may round such numbers.
type hex uint64

func (h hex) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#x", uint64(h)), nil }

func newHex[T uint32 | uint64](v T) *hex {
	h := hex(v)
	return &h
}

// appendJSON appends the object for r and a newline.
func (r *Record) appendJSON(b []byte, file string) ([]byte, error) {
	f := &r.Frame
	l := line{
		File: file, Offset: r.Offset, Time: time.Unix(0, r.Time).UTC(), Interface: r.Name, Length: r.OrigLen,
		Comments: r.Comments, Kind: "roce", SrcMAC: f.Eth.Src, DstMAC: f.Eth.Dst,
	}
	switch r.Verdict {
	case Other:
		l.Kind = "other"
		var eth wire.Ethernet
		if eth.Parse(r.Data) == nil {
			l.SrcMAC, l.DstMAC = eth.Src, eth.Dst
		}
	case Malformed:
		l.Kind = "malformed"
		l.Error = r.Err.Error()
		l.addresses(f)
	default:
		l.addresses(f)
		l.transport = r.newTransport()
	}
	if r.Dispute != nil {
		l.Dispute = r.Dispute.Error()
	}
	text, err := json.Marshal(&l)
	return append(append(b, text...), '\n'), err
}

func (l *line) addresses(f *wire.Frame) {
	l.Src, l.Dst, l.SrcPort = f.SrcAddr(), f.DstAddr(), f.UDP.SrcPort
	if f.V6 {
		l.TOS, l.TTL = f.IPv6.TrafficClass, f.IPv6.HopLimit
	} else {
		l.TOS, l.TTL, l.IPID = f.IPv4.TOS, f.IPv4.TTL, &f.IPv4.ID
	}
	if f.Eth.Tagged {
		vlan := f.Eth.VLAN()
		l.VLAN = &vlan
	}
}

func (r *Record) newTransport() *transport {
	f, h := &r.Frame, &r.Frame.BTH
	t := &transport{
		Opcode: h.Opcode, DestQP: h.DestQP, PSN: h.PSN, PKey: hex(h.PKey),
		AckReq: h.AckReq, Solicited: h.Solicited, MigReq: h.MigReq, FECN: h.FECN, BECN: h.BECN,
		Payload: len(f.Payload), Pad: h.Pad, sum: sum{r.Verdict, hex(f.ICRC)},
	}
	has := h.Opcode.Info().Headers
	if has&wire.HasXRCETH != 0 {
		t.SRQN = &f.XRCETH.SRQN
	}
	if has&wire.HasRETH != 0 {
		t.RETH = &reth{VA: hex(f.RETH.VA), RKey: hex(f.RETH.RKey), Length: f.RETH.Length}
		if has&wire.HasFETH != 0 {
			t.RETH.Selectivity, t.RETH.Placement = newHex(uint32(f.FETH.Level)), newHex(uint32(f.FETH.Placement))
		}
	}
	if has&wire.HasAtomicETH != 0 {
		a := &f.AtomicETH
		t.AtomicETH = &atomic{VA: hex(a.VA), RKey: hex(a.RKey), SwapOrAdd: hex(a.SwapOrAdd), Compare: hex(a.Compare)}
		if has&wire.HasAtomicMasks != 0 {
			t.AtomicETH.SwapMask, t.AtomicETH.CompareOrBoundary = newHex(f.Masks.Swap), newHex(f.Masks.CompareOrBoundary)
		}
	}
	if has&wire.HasAETH != 0 {
		t.AETH = &aeth{Syndrome: f.AETH.Syndrome.String(), Code: uint8(f.AETH.Syndrome), MSN: f.AETH.MSN}
	}
	if has&wire.HasDETH != 0 {
		t.DETH = &deth{QKey: hex(f.DETH.QKey), SrcQP: f.DETH.SrcQP}
	}
	if has&wire.HasAtomicAckETH != 0 {
		t.AtomicAck = newHex(f.AtomicAck)
	}
	if has&wire.HasImmDt != 0 {
		t.Immediate = newHex(f.ImmDt)
	}
	if has&wire.HasIETH != 0 {
		t.InvRKey = newHex(f.IETH)
	}
	return t
}
