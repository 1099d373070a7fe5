package rackfile

import (
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// maxPKeys bounds the number of partitions of a host.
	maxPKeys   = 128
	fullMember = int(verbs.PKeyMember)
)

// pkeys reads the list of a host's P_Keys. Each partition may be in the list once, with a full or
// with a limited membership. With both, a packet would be accepted or refused depending on which
// entry the NIC compares with the packet's P_Key.
func (d *decoder) pkeys(n ast.Node) (table []uint16) {
	d.sequence(n, "pkeys", func(n ast.Node) {
		k, ok := text(d, n, "pkeys", number(1, 0xffff))
		partition := k &^ fullMember
		switch {
		case !ok:
		case len(table) == maxPKeys:
			d.errorf(n, "more than %d P_Keys; remove some", maxPKeys)
		case partition == 0:
			d.errorf(n, "pkeys: %#x names no partition; use 1 to 0x7fff, plus 0x8000 for a full member", k)
		case slices.ContainsFunc(table, func(other uint16) bool { return int(other)&^fullMember == partition }):
			d.errorf(n, "pkeys: partition %#x is in the list already; use one of %#x and %#x", partition, partition, partition|fullMember)
		default:
			table = append(table, uint16(k))
		}
	})
	if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
		d.errorf(n, "pkeys is empty; leave it out for the default partition, 0xffff")
	}
	return table
}

// partitions returns the partition table of the host's NIC: PKeys, or the default partition alone.
func (h *Host) partitions() []uint16 {
	if len(h.PKeys) == 0 {
		return []uint16{wire.DefaultPKey}
	}
	return h.PKeys
}

// Reaches reports whether the host can connect to a peer: the peer's table must have an entry that
// matches the first P_Key of the host's table, which the host's connections use.
func (h *Host) Reaches(peer *Host) bool {
	_, ok := verbs.PKeyIndex(peer.partitions(), h.partitions()[0])
	return ok
}
