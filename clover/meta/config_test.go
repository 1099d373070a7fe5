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
