package pipeline

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// flowIdle is how long a flow must have been silent before another flow may replace it in a full
// table.
const flowIdle = time.Minute

// flowKey names a flow. A packet carries only the destination's queue pair.
type flowKey struct {
	src, dst [16]byte
	v6       bool
	qpn      wire.QPN
}

type flowStats struct {
	packets, bytes uint64
	first, last    clock.Time
}

// Flow counts the packets from one address to one queue pair of another address, requests and
// responses alike.
type Flow struct {
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	QPN     wire.QPN   `json:"qpn"`
	Packets uint64     `json:"packets"`
	Bytes   uint64     `json:"bytes"`
	// Age is the time since the first packet. Idle is the time since the last packet.
	Age  time.Duration `json:"age"`
	Idle time.Duration `json:"idle"`
}

// flows is a bounded table of flow counters.
type flows struct {
	table    map[flowKey]*flowStats
	max      int
	sweep    clock.Time // no sweep for silent flows before this time
	overflow uint64     // packets of flows that are not in the full table

	// recent has flows of the last packets, so that requests and responses that take turns need no
	// look-up in the table. The place of a flow in recent is flowKey.place.
	recent [recentFlows]recentFlow
}

const (
	recentBits  = 6
	recentFlows = 1 << recentBits
)

type recentFlow struct {
	key   flowKey
	stats *flowStats // nil means that the place is unused
}

// place returns a key's index in flows.recent: a multiplicative hash of the queue pair and of the
// bytes in which addresses of one network differ.
func (k *flowKey) place() int {
	const odd = 0x9e3779b1 // 2^32 divided by the golden ratio (Knuth, volume 3, 6.4)
	h := uint32(k.qpn) ^ uint32(k.src[3]^k.src[15])<<8 ^ uint32(k.dst[3]^k.dst[15])<<16
	return int(h * odd >> (32 - recentBits))
}

func newFlows(max int) flows { return flows{table: make(map[flowKey]*flowStats), max: max} }

func (t *flows) count(now clock.Time, f *wire.Frame, packets, bytes int) {
	k := flowKey{v6: f.V6, qpn: f.BTH.DestQP}
	if f.V6 {
		k.src, k.dst = f.IPv6.Src, f.IPv6.Dst
	} else {
		copy(k.src[:], f.IPv4.Src[:])
		copy(k.dst[:], f.IPv4.Dst[:])
	}
	r := &t.recent[k.place()]
	if r.stats == nil || r.key != k {
		s, ok := t.table[k]
		if !ok {
			if s = t.add(now, k); s == nil {
				t.overflow += uint64(packets)
				return
			}
		}
		*r = recentFlow{k, s}
	}
	r.stats.packets += uint64(packets)
	r.stats.bytes += uint64(bytes)
	r.stats.last = now
}

func (t *flows) add(now clock.Time, k flowKey) *flowStats {
	if len(t.table) >= t.max {
		if now >= t.sweep {
			t.sweep = now.Add(time.Second)
			maps.DeleteFunc(t.table, func(_ flowKey, s *flowStats) bool { return now.Sub(s.last) > flowIdle })
			clear(t.recent[:])
		}
		if len(t.table) >= t.max {
			return nil
		}
	}
	s := &flowStats{first: now}
	t.table[k] = s
	return s
}

// list returns the flows, sorted by packets, the largest number first.
func (t *flows) list(now clock.Time) []Flow {
	out := make([]Flow, 0, len(t.table))
	for k, s := range t.table {
		f := Flow{
			Src: netip.AddrFrom16(k.src), Dst: netip.AddrFrom16(k.dst), QPN: k.qpn,
			Packets: s.packets, Bytes: s.bytes, Age: now.Sub(s.first), Idle: now.Sub(s.last),
		}
		if !k.v6 {
			f.Src, f.Dst = netip.AddrFrom4([4]byte(k.src[:])), netip.AddrFrom4([4]byte(k.dst[:]))
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.QPN, b.QPN))
	})
	return out
}

// Hash spreads the keys of tables over all bits: the finaliser of MurmurHash3.
func Hash(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
