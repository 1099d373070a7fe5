package packetbuffer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Bounds of rules with action buffer.
const (
	// MaxServers is how many servers can share a ring. MaxEntries is how many entries a ring can
	// have. MaxHigh is how many frames can wait in the switch.
	MaxServers, MaxEntries, MaxHigh = 8, 1 << 20, 1 << 14

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

// entrySizes are the allowed sizes of an entry, in bytes.
var entrySizes = []string{"512", "1024", "2048", "4096"}

// Buffer is the action buffer.
var Buffer = rules.Register(rules.Definition{
	Name: "buffer", Doc: "limits the rate of the port to a host, and keeps frames that must wait in the memory of servers; see `rdmalab switch buffers`",
	Queues: true, Dials: func(*rules.Rule) bool { return true }, Check: check, Together: together, Hosts: []string{keyRing},
	Keys: []rules.Field{
		ringKey(),
		rules.Option(keyRate, "1Gbit", "with action buffer: rate of the port to the host, in bits a second. Required", checkRate),
		rules.Option(keyHigh, "64", fmt.Sprintf("with action buffer: when so many frames wait in the switch, the next ones go to the ring, 1 to %d; default: %d",
			MaxHigh, defaultHigh), between(1, MaxHigh)),
		rules.Option(keyLow, "8", fmt.Sprintf("with action buffer: when fewer frames wait in the switch, frames come back from the ring; at most %s; default: %d, or %s if that is less",
			keyHigh, defaultLow, keyHigh), between(1, MaxHigh)),
		rules.Option(keyEntries, "4096", fmt.Sprintf("with action buffer: entries of the ring on all servers together, 1 to %d; default: %d", MaxEntries, defaultEntries),
			between(1, MaxEntries)),
		rules.Option(keyEntry, "2048", fmt.Sprintf("with action buffer: bytes of an entry, of which %d are a header; one of %s, and at most the path MTU; default: %d",
			headerLen, strings.Join(entrySizes, ", "), defaultEntry), checkEntry),
		rules.Option(keyOffset, "0x1000", "with action buffer: offset of the ring in the region of each server's memory service, a multiple of 8; default: 0", checkOffset),
	},
})

// ringKey returns the field of the key ring. It keeps each address in its canonical text, so that
// equal addresses are equal words.
func ringKey() rules.Field {
	f := rules.Option(keyRing, "ms0,ms1", fmt.Sprintf("with action buffer: up to %d memory servers, separated by commas, that have the ring. Required", MaxServers), checkRing)
	set := f.Set
	f.Set = func(r *rules.Rule, text string) error {
		words := strings.Split(text, ",")
		for i, w := range words {
			if a, err := netip.ParseAddr(w); err == nil {
				words[i] = a.Unmap().String()
			}
		}
		return set(r, strings.Join(words, ","))
	}
	return f
}

func checkRing(s string) error {
	list := strings.Split(s, ",")
	if len(list) > MaxServers {
		return fmt.Errorf("%d servers; at most %d are allowed", len(list), MaxServers)
	}
	for i, w := range list {
		a, err := netip.ParseAddr(w)
		if err == nil && (a.Zone() != "" || a.IsUnspecified() || a.IsMulticast()) {
			return fmt.Errorf("%.60q is no address of a machine", w)
		}
		if err != nil && (w == "" || len(w) > rules.MaxID || strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789-") != "") {
			return fmt.Errorf("%.60q is neither a host's name nor an address", w)
		}
		if slices.Contains(list[:i], w) {
			return fmt.Errorf("%.60q is there twice", w)
		}
	}
	return nil
}

func checkRate(s string) error {
	n, err := spec.ParseRate(s)
	if err == nil && (n < fault.MinRate || n > fault.MaxRate) {
		return fmt.Errorf("rate %.40s: use %s to %s", s, fault.FormatRate(fault.MinRate), fault.FormatRate(fault.MaxRate))
	}
	return err
}

func between(low, high int) func(string) error {
	return func(s string) error {
		if n, err := strconv.Atoi(s); err != nil || n < low || n > high {
			return fmt.Errorf("%.40q is no number from %d to %d", s, low, high)
		}
		return nil
	}
}

func checkEntry(s string) error {
	if !slices.Contains(entrySizes, s) {
		return fmt.Errorf("%.40q is no size of an entry; use one of %s", s, strings.Join(entrySizes, ", "))
	}
	return nil
}

func checkOffset(s string) error {
	if n, err := strconv.ParseUint(s, 0, 48); err != nil || n%8 != 0 {
		return fmt.Errorf("%.40q is no offset; use a multiple of 8", s)
	}
	return nil
}

// check returns what is wrong with one rule of action buffer.
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
		return fmt.Errorf("%s %d is above %s %d", keyLow, l.Low, keyHigh, l.High)
	case r.MTU != 0 && r.MTU < l.Entry:
		return fmt.Errorf("an entry of %d bytes is longer than the path MTU of %d bytes", l.Entry, r.MTU)
	}
	for _, a := range l.Servers {
		if r.Of(a) {
			return fmt.Errorf("%v has the ring and is the host whose port is limited", a)
		}
	}
	return nil
}

// together returns what is wrong with the rules of action buffer of one set. A host has one rule,
// rings must not overlap, and a server of a ring must not be behind a limited port: its frames would
// have to wait for themselves.
func together(list []*rules.Rule) error {
	for i, r := range list {
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			switch {
			case r.Of(s.Server):
				return fmt.Errorf("rules %s and %s limit the port to the same host", s.ID, r.ID)
			case slices.ContainsFunc(a.Servers, s.Of) || slices.ContainsFunc(b.Servers, r.Of):
				return fmt.Errorf("rules %s and %s: a server of a ring is behind a port that the other rule limits", s.ID, r.ID)
			case slices.ContainsFunc(a.Servers, func(x netip.Addr) bool { return slices.Contains(b.Servers, x) }) && a.Offset < b.End() && b.Offset < a.End():
				return fmt.Errorf("rules %s and %s have rings in the same server that overlap; give one of them %s=%#x", s.ID, r.ID, keyOffset, max(a.End(), b.End()))
			}
		}
	}
	return nil
}

// Layout says what a rule of action buffer asks for.
type Layout struct {
	// Servers are the addresses of the servers of the ring.
	Servers []netip.Addr
	// Entries is the number of entries on all servers together. Entry is the size of one in bytes.
	// Offset is the offset of the ring in each server's memory, in bytes.
	Entries, Entry int
	Offset         uint64
	// Depth is how many READs may be in flight to each server.
	Depth int
	// High and Low are the numbers of waiting frames at which frames go to the ring, and come back.
	High, Low int
	// Rate is the rate of the port in bits per second.
	Rate int64
}

// LayoutOf returns the layout of a rule. Servers lacks a server whose name is not resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	number := func(key string, fallback int) int {
		if n, err := strconv.Atoi(r.Options[key]); err == nil {
			return n
		}
		return fallback
	}
	l := Layout{Entries: number(keyEntries, defaultEntries), Entry: number(keyEntry, defaultEntry), Depth: r.Depth(), High: number(keyHigh, defaultHigh)}
	l.Low = number(keyLow, min(defaultLow, l.High))
	l.Offset, _ = strconv.ParseUint(r.Options[keyOffset], 0, 48) // "" is 0
	l.Rate, _ = spec.ParseRate(r.Options[keyRate])               // a valid rule has one
	for _, w := range strings.Split(r.Options[keyRing], ",") {
		if a, err := netip.ParseAddr(w); err == nil {
			l.Servers = append(l.Servers, a.Unmap())
		}
	}
	return l
}

// sameRing reports whether both layouts have the same ring.
func (l *Layout) sameRing(o *Layout) bool {
	return slices.Equal(l.Servers, o.Servers) && l.Entries == o.Entries && l.Entry == o.Entry && l.Offset == o.Offset && l.Depth == o.Depth
}

// Place returns where entry i of the ring is: the index of its server, and its offset in the
// server's memory in bytes.
func (l *Layout) Place(i uint64) (server int, offset uint64) {
	i %= uint64(l.Entries)
	n := uint64(len(l.Servers))
	return int(i % n), l.Offset + i/n*uint64(l.Entry)
}

// End returns the offset behind the last entry on a server, in bytes.
func (l *Layout) End() uint64 {
	n := max(1, len(l.Servers))
	return l.Offset + uint64((l.Entries+n-1)/n)*uint64(l.Entry)
}
