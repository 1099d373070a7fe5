package dump

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Filter selects the packets to print; all its fields that are set must match. Damaged packets are
// counted even if they are not selected. The zero value selects every RoCEv2 packet.
type Filter struct {
	// Opcodes are patterns of path.Match, such as "RC_WRITE_*"; upper and lower case are the same. One
	// of them must match; nil means any opcode.
	Opcodes []string
	// QPN is the destination queue pair, or the source queue pair of a datagram; nil means any.
	QPN *wire.QPN
	// PSN is the packet sequence number; nil means any.
	PSN *wire.PSN
	// Host is the source or destination address; the zero Addr means any.
	Host netip.Addr
	// Interface is the name of the capture's interface; empty means any.
	Interface string
	// Bad selects malformed packets, those with a wrong ICRC, and those on which the decoders
	// disagree.
	Bad bool
	// Commented selects packets with a comment: those that a fault or the switch has handled in a
	// special way, for example changed, delayed or dropped.
	Commented bool
	// Other selects frames that are not RoCEv2, too; each is printed as a short line. They have no
	// opcode, queue pair, PSN and host, so a filter with one of these fields selects none of them.
	Other bool
}

// Validate returns an error for a pattern that no opcode matches.
func (f *Filter) Validate() error {
	for _, p := range f.Opcodes {
		if !anyOpcode(p) {
			_, err := wire.ParseOpcode(p) // proposes a name
			if err == nil || strings.ContainsAny(p, "*?[") {
				err = fmt.Errorf("%w: no opcode matches %.60q", wire.ErrOpcode, p)
			}
			return err
		}
	}
	return nil
}

func anyOpcode(pattern string) bool {
	for o := range 256 {
		if matchOpcode(pattern, wire.Opcode(o)) {
			return true
		}
	}
	return false
}

func matchOpcode(pattern string, o wire.Opcode) bool {
	ok, err := path.Match(strings.ToUpper(pattern), strings.ToUpper(o.String()))
	return err == nil && ok
}

// match reports whether r must be printed.
func (f *Filter) match(r *Record) bool {
	if (f.Interface != "" && r.Name != f.Interface) || (f.Commented && len(r.Comments) == 0) {
		return false
	}
	bad := r.Verdict == BadICRC || r.Verdict == Malformed || r.Dispute != nil
	if f.Bad && !bad {
		return false
	}
	switch r.Verdict {
	case Other:
		return f.Other && !f.aboutPacket() && !f.Host.IsValid()
	case Malformed: // its headers cannot be trusted, so filters on packet fields do not match
		return !f.aboutPacket() && f.matchHost(&r.Frame)
	default:
		return f.matchHost(&r.Frame) && f.matchPacket(&r.Frame)
	}
}

// aboutPacket reports whether the filter matches only well-formed RoCEv2 packets.
func (f *Filter) aboutPacket() bool { return len(f.Opcodes) > 0 || f.QPN != nil || f.PSN != nil }

func (f *Filter) matchHost(fr *wire.Frame) bool {
	return !f.Host.IsValid() || fr.SrcAddr() == f.Host || fr.DstAddr() == f.Host
}

func (f *Filter) matchPacket(fr *wire.Frame) bool {
	h := &fr.BTH
	switch {
	case f.QPN != nil && h.DestQP != *f.QPN && (!h.Opcode.Has(wire.HasDETH) || fr.DETH.SrcQP != *f.QPN):
		return false
	case f.PSN != nil && h.PSN != *f.PSN:
		return false
	case len(f.Opcodes) == 0:
		return true
	}
	return slices.ContainsFunc(f.Opcodes, func(p string) bool { return matchOpcode(p, h.Opcode) })
}
