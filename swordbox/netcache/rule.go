package netcache

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
)

// Bounds of rules of action cache.
const (
	// MaxItems is how many values the memory can have; the switch itself has 48 bytes for each. MinSize and MaxSize
	// bound the bytes of a cell, and MaxAge is how long a value can answer GETs.
	MaxItems, MinSize, MaxSize = 1 << 30, 64, 4096
	MaxAge                     = time.Hour

	defaultPort, defaultItems, defaultSize, defaultHot = 11211, 4096, 1024, 8
	defaultAge                                         = time.Second
)

// Keys that only rules with action cache have.
const (
	keyPort  = "kvport"
	keyItems = "items"
	keySize  = "size"
	keyHot   = "hot"
	keyAge   = "age"
)

// Action is the action cache.
var Action = rules.Register(rules.Definition{
	Name: "cache", Doc: "answers GETs of memcached's protocol over UDP in the place of a key-value server, with values that it keeps in the memory of servers; see `rdmalab switch cached`",
	Queues: true, Dials: func(*rules.Rule) bool { return true }, Check: check, Together: together, Memory: memoryOf, Hosts: []string{hotwords.KeyStore},
	Shares: []string{hotwords.KeyStore, statestore.KeyAt, extmem.KeyCap, extmem.KeyDSCP},
	Keys: []rules.Field{
		rules.Option(keyPort, "11211", fmt.Sprintf("with action cache: UDP port of the key-value server, 1 to 65535; packets of TCP to and from this port are dropped, because a write by TCP would pass unseen; default: %d", defaultPort),
			extmem.Between(1, 65535)),
		rules.Option(keyItems, "65536", fmt.Sprintf("with action cache: values that the memory of all servers together can have, 1 to %d, rounded up to a multiple of %d; each used one takes %d bytes of the switch, too, in pages of 12 KB; default: %d", MaxItems, ways, placeBytes, defaultItems), extmem.Between(1, MaxItems)),
		rules.Option(keySize, "512", fmt.Sprintf("with action cache: bytes of the cell of a value, %d to %d, a multiple of 8, and at most the path MTU; %d of them are a header, and key, flags and length of the item take some; default: %d",
			MinSize, MaxSize, cellHead, defaultSize), checkSize),
		rules.Option(keyHot, "2", fmt.Sprintf("with action cache: how many GETs of a key make the switch keep its value, 1 to 16384, counted by a sketch; default: %d", defaultHot), extmem.Between(1, 1<<14)),
		rules.Option(keyAge, "100ms", fmt.Sprintf("with action cache: how long a value answers GETs before the server is asked again, 1us to %v; this bounds what expiry and writes that do not pass the switch can do; default: %v", MaxAge, defaultAge),
			checkAge),
	},
})

func checkSize(s string) error {
	if err := extmem.Between(MinSize, MaxSize)(s); err != nil {
		return err
	}
	if extmem.Number(s, 0)%extmem.Align != 0 {
		return fmt.Errorf("%.40q is no multiple of %d", s, extmem.Align)
	}
	return nil
}

func checkAge(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d < time.Microsecond || d > MaxAge {
		return fmt.Errorf("%.40q is no duration from 1us to %v", s, MaxAge)
	}
	return nil
}

func check(r *rules.Rule) error {
	l := LayoutOf(r)
	switch {
	case !statestore.Selects(r):
		return fmt.Errorf("action cache needs the key %s", hotwords.KeyStore)
	case r.Service == "":
		return errors.New("service none: the switch must connect to the servers of the key store to learn where their memory is; name their service")
	case r.Mode != rules.Hardened:
		return fmt.Errorf("action cache has no mode %v; leave the mode out", r.Mode)
	case r.From != 0 || r.To != 0 || r.RKey != 0:
		return errors.New("range and rkey select requests; action cache is about datagrams of the key-value server")
	case r.Shards != 0:
		return fmt.Errorf("shards has no meaning with action cache; name several servers in %s", hotwords.KeyStore)
	case r.MTU != 0 && r.MTU < l.Size:
		return fmt.Errorf("a cell of %d bytes is longer than the path MTU of %d bytes", l.Size, r.MTU)
	case l.Port == rocePort:
		return errors.New("4791 is the port of RoCEv2")
	}
	return nil
}

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// together returns what is wrong with the rules of action cache of one set.
func together(list []*rules.Rule) error {
	for i, r := range list {
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			switch {
			case r.Of(s.Server) && a.Port == b.Port:
				return fmt.Errorf("rules %s and %s are for the same port of the same server; remove one of them", s.ID, r.ID)
			case r.Of(s.Server):
				return fmt.Errorf("rules %s and %s are for the same server; the switch has one cache for a server", s.ID, r.ID)
			case a.Overlaps(&b.Area):
				return fmt.Errorf("rules %s and %s have values in the same server that overlap; give %s %s=%#x", s.ID, r.ID, r.ID, statestore.KeyAt, b.End())
			}
		}
	}
	return nil
}

func memoryOf(r *rules.Rule) rules.Memory {
	l := LayoutOf(r)
	return l.Area.Memory(r.Service, statestore.KeyAt)
}

// Layout is the cache for which a rule asks.
type Layout struct {
	// Area is where the cells of values are.
	extmem.Area
	Service string
	// Port is the UDP port of the key-value server.
	Port uint16
	// Hot is how many GETs give a key a cell. Age is how long a value answers GETs.
	Hot uint32
	Age time.Duration
	// Depth is how many READs may be in flight to each server.
	Depth  int
	Limits requester.Limits
}

// LayoutOf returns the layout of a valid rule. Layout.Servers leaves out a server whose name is not resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	number := func(key string, fallback int) int { return extmem.Number(r.Options[key], fallback) }
	l := Layout{
		Area: extmem.Area{
			Servers: extmem.Servers(r.Options[hotwords.KeyStore]), Offset: extmem.Offset(r.Options[statestore.KeyAt]),
			Cells: (number(keyItems, defaultItems) + ways - 1) / ways * ways, Size: number(keySize, defaultSize),
		},
		Service: r.Service, Port: uint16(number(keyPort, defaultPort)), Hot: uint32(number(keyHot, defaultHot)), Age: defaultAge, Depth: r.Depth(), Limits: extmem.LimitsOf(r, 0),
	}
	if d, err := time.ParseDuration(r.Options[keyAge]); err == nil {
		l.Age = d
	}
	return l
}

// same reports whether both layouts have the same values in the same places, and answer by the same port.
func (l *Layout) same(o *Layout) bool {
	return l.Same(&o.Area) && l.Service == o.Service && l.Port == o.Port && l.Hot == o.Hot && l.Age == o.Age && l.Depth == o.Depth
}
