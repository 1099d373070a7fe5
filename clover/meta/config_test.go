package meta

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// The classes share the memory in segments, which are shorter in a small region. If they have fixed
// parts, the server says why.
func TestSpaceOfARegion(t *testing.T) {
	const keys = 1024
	fixed := func(why string) func(*layout.Space, string) bool {
		return func(s *layout.Space, text string) bool { return !s.Shared && strings.Contains(text, why) }
	}
	segments := func(length int) func(*layout.Space, string) bool {
		return func(s *layout.Space, text string) bool {
			return s.Shared && text == "" && s.SegmentLen() == length && s.Segments() >= minSegments
		}
	}
	for name, c := range map[string]struct {
		region, replicas int
		format           layout.Format
		want             func(*layout.Space, string) bool
	}{
		"usual":                   {64 << 20, 1, layout.Hardened, segments(32768)},
		"2 MiB":                   {2 << 20, 1, layout.Hardened, segments(32768)},
		"2 MiB, two copies":       {2 << 20, 2, layout.Hardened, segments(16384)},
		"512 KiB":                 {512 << 10, 1, layout.Hardened, segments(8192)},
		"256 KiB":                 {256 << 10, 1, layout.Hardened, segments(4096)},
		"100 KiB":                 {100 << 10, 1, layout.Hardened, fixed("less than 128 KiB")},
		"just below 2 GiB":        {2<<30 - 1<<20, 1, layout.Hardened, segments(32768)},
		"4 GiB":                   {4 << 30, 1, layout.Hardened, fixed("2 GiB or more")},
		"without checksum":        {64 << 20, 1, layout.Keyed, fixed("checksum")},
		"as published":            {64 << 20, 1, layout.Published, fixed("checksum")},
		"published and 4 GiB":     {4 << 30, 1, layout.Published, fixed("checksum")},
		"100 KiB and two copies":  {200 << 10, 2, layout.Hardened, fixed("less than 128 KiB")},
		"little without checksum": {100 << 10, 1, layout.Keyed, fixed("checksum")},
	} {
		cfg := Config{Servers: make([]netip.Addr, 2), Keys: keys, Format: c.format, Replicas: c.replicas}
		s, err := cfg.space(c.region)
		if err != nil || s.RegionLen() > c.region || !c.want(&s, whyFixed(&s, c.format)) {
			t.Errorf("%s: %+v, %d bytes, fixed %q, %v", name, s, s.RegionLen(), whyFixed(&s, c.format), err)
		}
		if used := s.RegionLen(); s.Shared && c.region-used > s.SegmentLen()*max(1, c.replicas)+layout.MinSlab*4 {
			t.Errorf("%s: %d of %d bytes are not used", name, c.region-used, c.region)
		}
	}
}

// Segments and copies begin at multiples of the smallest node, so a space may have a segment less
// than the region has room for. A store has enough segments nevertheless, or says why it has none.
func TestSegmentsInEveryRegion(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		for keys := 1; keys < 4000; keys += 37 {
			cfg := Config{Servers: make([]netip.Addr, 3), Keys: keys, Format: layout.Hardened, Replicas: replicas}
			bare := layout.Space{Servers: 3, Shortcuts: (keys + 2) / 3, Backups: replicas - 1}
			for c := minSegmentClass; c < layout.Classes; c++ {
				least := bare.RegionLen() + minSegments*(c.Size()+1)*replicas
				for region := least - 64; region < least+512*replicas; region += 32 {
					s, err := cfg.space(region)
					why := whyFixed(&s, cfg.Format)
					if err != nil || s.RegionLen() > region || s.Shared && s.Segments() < minSegments || !s.Shared && !strings.Contains(why, "less than 128 KiB") {
						t.Fatalf("%d copies of %d keys in %d bytes: %d segments of %d bytes, fixed %q, %v", replicas, keys, region, s.Segments(), s.SegmentLen(), why, err)
					}
				}
			}
		}
	}
}

// What a server has too little or too much of is one copy of its nodes.
func TestFixedNamesCopies(t *testing.T) {
	for _, c := range []struct {
		region, replicas int
		want             string
	}{
		{100 << 10, 1, "each memory server has less than 128 KiB for nodes"},
		{200 << 10, 2, "each memory server has less than 128 KiB for one copy of its nodes"},
		{7 << 30, 3, "each memory server has 2 GiB or more for one copy of its nodes"},
	} {
		cfg := Config{Servers: make([]netip.Addr, 3), Keys: 64, Format: layout.Hardened, Replicas: c.replicas}
		s, err := cfg.space(c.region)
		if why := whyFixed(&s, cfg.Format); err != nil || why != c.want {
			t.Errorf("%d copies in %d bytes: fixed because %q, %v; want %q", c.replicas, c.region, why, err, c.want)
		}
	}
}
