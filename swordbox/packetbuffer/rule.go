package packetbuffer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/units"
)

// Bounds of rules with action buffer.
const (
	// MaxEntries is how many entries a ring can have: more than any server has memory for, whose region's
	// length is the bound (extmem.Area.Grant). MaxHigh is how many frames can wait in the switch.
	MaxEntries, MaxHigh = 1 << 30, 1 << 14

	defaultEntries, defaultEntry = 4096, 2048
	defaultHigh, defaultLow      = 64, 8
)

// Keys that only rules with action buffer have.
const (
	keyRing    = "ring"
	keyRate    = "rate"
	keyHigh    = "high"
	keyLow     = "low"
	keyEntries = "entries"
	keyEntry   = "entry"
	keyOffset  = "offset"
)

// entrySizes are the allowed sizes of an entry, in bytes. An entry of 1552 bytes has room for a
// header and an Ethernet frame of 1518 bytes. READs bring whole entries, so for such frames entries
// of 2048 bytes would take a third more of the server's link.
var entrySizes = []string{"512", "1024", "1552", "2048", "4096"}

var Buffer = rules.Register(rules.Definition{
	Name: "buffer", Doc: "limits the rate of the port to a host, and keeps frames that must wait in the memory of servers; see `rdmalab switch buffers`",
	Queues: true, Dials: func(*rules.Rule) bool { return true }, Check: check, Together: together, Memory: memoryOf, Hosts: []string{keyRing}, Shares: extmem.LimitKeys,
	Keys: []rules.Field{
		extmem.ServersKey(keyRing, "ms0,ms1", fmt.Sprintf("with action buffer: up to %d memory servers, separated by commas, that have the ring, the queue for frames that find no room in the switch. Required", extmem.MaxServers)),
		rules.Option(keyRate, "1Gbit", "with action buffer: rate of the port to the host, in bits a second, 8Kbit to 1Tbit. Required", checkRate),
		rules.Option(keyHigh, "64", fmt.Sprintf("with action buffer: when this many frames, or this number times %d bytes, wait in the switch, later frames go to the ring; 1 to %d; default: %d",
			frameBytes, MaxHigh, defaultHigh), extmem.Between(1, MaxHigh)),
		rules.Option(keyLow, "8", fmt.Sprintf("with action buffer: when fewer frames than this, and fewer than this number times %d bytes, wait in the switch, frames come back from the ring; 1 to %s; default: %d, or %s if that is less",
			frameBytes, keyHigh, defaultLow, keyHigh), extmem.Between(1, MaxHigh)),
		rules.Option(keyEntries, "4096", fmt.Sprintf("with action buffer: entries of the ring on all servers together, 1 to %d, as far as the servers' memory has room; default: %d", MaxEntries, defaultEntries),
			extmem.Between(1, MaxEntries)),
		rules.Option(keyEntry, "2048", fmt.Sprintf("with action buffer: bytes of an entry, of which %d are a header; one of %s, and at most the path MTU; default: %d",
			framering.HeaderLen, strings.Join(entrySizes, ", "), defaultEntry), extmem.OneOf(entrySizes...)),
		rules.Option(keyOffset, "0x1000", "with action buffer: offset of the ring in the region of each server's memory service, a multiple of 8; default: 0", extmem.CheckOffset),
	},
})

func checkRate(s string) error {
	n, err := units.ParseRate(s)
	if err == nil && (n < fault.MinRate || n > fault.MaxRate) {
		return fmt.Errorf("rate %.40s: use %s to %s", s, fault.FormatRate(fault.MinRate), fault.FormatRate(fault.MaxRate))
	}
	return err
}

func check(r *rules.Rule) error {
	l := LayoutOf(r)
	switch {
	case r.Options[keyRing] == "" || r.Options[keyRate] == "":
		return fmt.Errorf("action buffer needs the keys %s and %s", keyRing, keyRate)
	case r.Service == "":
		return errors.New("service none: the switch must connect to the servers to learn where their memory is; name their service")
	case r.From != 0 || r.To != 0 || r.RKey != 0:
		return errors.New("range and rkey select requests; action buffer takes all frames to the host")
	case r.Shards != 0:
		return fmt.Errorf("shards has no meaning with action buffer; name several servers in %s", keyRing)
	case l.Low > l.High:
		return fmt.Errorf("%s %d is above %s %d; make it smaller", keyLow, l.Low, keyHigh, l.High)
	case r.MTU != 0 && r.MTU < l.Size:
		return fmt.Errorf("an entry of %d bytes is longer than the path MTU of %d bytes; choose an mtu of at least %d", l.Size, r.MTU, l.Size)
	}
	for _, a := range l.Servers {
		if r.Of(a) {
			return fmt.Errorf("%v has the ring and is the host whose port is limited; put the ring on another server", a)
		}
	}
	return extmem.CheckLimits(r)
}

// together returns what is wrong with the rules of action buffer of one set. A host has one rule,
// rings must not overlap, and the port to a server of a ring must not be limited itself: the frames
// to the ring would wait in the same ring.
func together(list []*rules.Rule) error {
	for i, r := range list {
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			switch {
			case r.Of(s.Server):
				return fmt.Errorf("rules %s and %s limit the port to the same host; remove one of them", s.ID, r.ID)
			case slices.ContainsFunc(a.Servers, s.Of) || slices.ContainsFunc(b.Servers, r.Of):
				return fmt.Errorf("rules %s and %s: a server of a ring is behind a port that the other rule limits; put the ring on another server", s.ID, r.ID)
			case a.Overlaps(&b.Area):
				return fmt.Errorf("rules %s and %s have rings in the same server that overlap; give one of them %s=%#x", s.ID, r.ID, keyOffset, max(a.End(), b.End()))
			}
		}
	}
	return nil
}

func memoryOf(r *rules.Rule) rules.Memory {
	l := LayoutOf(r)
	return l.Area.Memory(r.Service, keyOffset)
}

// Layout is the queue and the ring for which a rule of action buffer asks.
type Layout struct {
	// Area says where the entries of the ring are. Service is the name of the service that lends
	// this memory.
	extmem.Area
	Service string
	// Depth bounds the READs in flight to each server: see the package comment.
	Depth int
	// When High frames wait in the switch, further frames go to the ring. When fewer than Low wait,
	// frames come back.
	High, Low int
	// Rate is the rate of the port in bits per second.
	Rate int64
	// Limits are those of the switch's requests to each server.
	Limits requester.Limits
}

// LayoutOf returns the layout of a rule. Layout.Servers leaves out a server whose name is not
// resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	number := func(key string, fallback int) int { return extmem.Number(r.Options[key], fallback) }
	l := Layout{
		Area: extmem.Area{
			Servers: extmem.Servers(r.Options[keyRing]), Offset: extmem.Offset(r.Options[keyOffset]),
			Cells: number(keyEntries, defaultEntries), Size: number(keyEntry, defaultEntry),
		},
		Service: r.Service, Depth: r.Depth(), High: number(keyHigh, defaultHigh),
	}
	l.Low = number(keyLow, min(defaultLow, l.High))
	l.Limits = extmem.LimitsOf(r, extmem.FrameBurst)
	l.Rate, _ = units.ParseRate(r.Options[keyRate]) // a valid rule has one
	return l
}

// sameRing reports whether both layouts have the same ring: the same memory, and the same depth,
// which decides the ring's window.
func (l *Layout) sameRing(o *Layout) bool {
	return l.Same(&o.Area) && l.Service == o.Service && l.Depth == o.Depth
}
