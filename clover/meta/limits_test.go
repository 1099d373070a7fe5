package meta

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// noManager is a connection manager for what makes no connection.
type noManager struct{ rdmacm.Manager }

// A field that a configuration leaves out has its documented default, and one that it sets stays.
func TestDefaultsOfAServer(t *testing.T) {
	d := (Config{}).withDefaults()
	if d.Service != rpc.Service || d.Keys != 65536 || d.Lease != 2*time.Second || d.Grace != 2*time.Second || d.Replicas != 0 || d.Threads != 0 {
		t.Errorf("%+v", d)
	}
	c := Config{Service: "s", Keys: 1, Lease: 3, Grace: 4, Region: 5, Threads: 6}.withDefaults()
	if c.Service != "s" || c.Keys != 1 || c.Lease != 3 || c.Grace != 4 || c.Region != 5 || c.Threads != 6 {
		t.Errorf("%+v", c)
	}
}

// A configuration is refused if it lacks something or has a number outside its bounds, and taken
// with each number at its bounds.
func TestBoundsOfAConfiguration(t *testing.T) {
	good := func() Config {
		return Config{Context: nothing{}, Manager: noManager{}, Servers: make([]netip.Addr, 2)}.withDefaults()
	}
	for name, c := range map[string]struct {
		change func(c *Config)
		ok     bool
	}{
		"as it is":               {func(*Config) {}, true},
		"no context":             {func(c *Config) { c.Context = nil }, false},
		"no manager":             {func(c *Config) { c.Manager = nil }, false},
		"no memory server":       {func(c *Config) { c.Servers = nil }, false},
		"one memory server":      {func(c *Config) { c.Servers = c.Servers[:1] }, true},
		"all memory servers":     {func(c *Config) { c.Servers = make([]netip.Addr, layout.MaxServers) }, true},
		"one more than all":      {func(c *Config) { c.Servers = make([]netip.Addr, layout.MaxServers+1) }, false},
		"one key":                {func(c *Config) { c.Keys = 1 }, true},
		"a negative key":         {func(c *Config) { c.Keys = -1 }, false},
		"no lease":               {func(c *Config) { c.Lease = 0 }, true},
		"a negative lease":       {func(c *Config) { c.Lease = -1 }, false},
		"no grace":               {func(c *Config) { c.Grace = 0 }, true},
		"a negative grace":       {func(c *Config) { c.Grace = -1 }, false},
		"a negative region":      {func(c *Config) { c.Region = -1 }, false},
		"all threads":            {func(c *Config) { c.Threads = MaxThreads }, true},
		"one more thread":        {func(c *Config) { c.Threads = MaxThreads + 1 }, false},
		"a negative thread":      {func(c *Config) { c.Threads = -1 }, false},
		"a copy on each server":  {func(c *Config) { c.Replicas = 2 }, true},
		"more copies":            {func(c *Config) { c.Replicas = 3 }, false},
		"a negative copy":        {func(c *Config) { c.Replicas = -1 }, false},
		"as many copies as can":  {func(c *Config) { c.Servers, c.Replicas = make([]netip.Addr, 9), layout.MaxBackups+1 }, true},
		"more copies than can":   {func(c *Config) { c.Servers, c.Replicas = make([]netip.Addr, 9), layout.MaxBackups+2 }, false},
		"one class alone":        {func(c *Config) { c.Shares[3] = 1 }, true},
		"a negative share":       {func(c *Config) { c.Shares[3] = -1 }, false},
		"a negative first share": {func(c *Config) { c.Shares = [layout.Classes]int{-1, 2} }, false},
	} {
		cfg := good()
		c.change(&cfg)
		if err := cfg.validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The memory of a server is too little or too much for segments exactly where the server says so.
func TestWhereFixedSpacesBegin(t *testing.T) {
	slab := layout.Class(0).Size()
	least, most := (128<<10+4*layout.MinSlab+slab-1)/slab, maxSegments*layout.UsualSegment/slab
	for n, want := range map[int]string{least - 1: "less than 128 KiB", least: "formatted in this way", most: "formatted in this way", most + 1: "2 GiB or more"} {
		s := layout.Space{Servers: 1, Entries: layout.Counts{n}}
		if why := whyFixed(&s, layout.Hardened); !strings.Contains(why, want) {
			t.Errorf("%d bytes: %q, want %q", n*slab, why, want)
		}
	}
	s := layout.Space{Servers: 1, Entries: layout.Counts{least - 1}, Backups: 1}
	if why := whyFixed(&s, layout.Hardened); !strings.Contains(why, "copy") {
		t.Errorf("with copies: %q", why)
	}
}

// A region may have exactly as many segments as a table has room for, beside any number of keys, and the
// fewest segments of the greatest length.
func TestMostAndFewestSegments(t *testing.T) {
	for _, keys := range []int{2, 1 << 20} {
		c := Config{Servers: make([]netip.Addr, 2), Keys: keys, Format: layout.Hardened}
		s := layout.Space{Servers: 2, Shortcuts: keys / 2}
		s.ShareIn(maxSegments*layout.UsualSegment, layout.Classes-1)
		if got, err := c.space(s.RegionLen()); err != nil || !got.Shared || got.Segments() != maxSegments {
			t.Errorf("%d keys: %d segments, shared %v, %v", keys, got.Segments(), got.Shared, err)
		}
		if got, err := c.space(s.RegionLen() + 2*layout.UsualSegment); err != nil || got.Shared {
			t.Errorf("%d keys, room for one more: %d segments, %v", keys, got.Segments(), err)
		}
	}
	c := Config{Servers: make([]netip.Addr, 2), Keys: 2, Format: layout.Hardened}
	s := layout.Space{Servers: 2, Shortcuts: 1}
	s.ShareIn(minSegments*layout.UsualSegment, layout.Classes-1)
	if got, err := c.space(s.RegionLen()); err != nil || got.SegmentLen() != layout.UsualSegment || got.Segments() != minSegments {
		t.Errorf("%d segments of %d bytes, %v", got.Segments(), got.SegmentLen(), err)
	}
}

// A region that has no room for anything but the keys is refused; the classes with a share get what
// is left.
func TestRegionWithoutRoom(t *testing.T) {
	c := Config{Servers: make([]netip.Addr, 2), Keys: 1000, Format: layout.Keyed}
	bare := layout.Space{Servers: 2, Shortcuts: 500}
	for extra, want := range map[int]string{-1: "not enough for 1000 keys", 0: "not enough for 1000 keys", 1: "0 entries"} {
		if _, err := c.space(bare.RegionLen() + extra); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes more than the keys need: %v, want %q", extra, err, want)
		}
	}
	c.Shares = [layout.Classes]int{2: 1}
	s, err := c.space(bare.RegionLen() + 10*layout.Class(2).Size())
	if err != nil || s.Entries != (layout.Counts{2: 10}) {
		t.Errorf("%+v, %v: want ten nodes of the only class with a share", s.Entries, err)
	}
}
