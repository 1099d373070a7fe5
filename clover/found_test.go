package clover_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	tree "github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// foundKeys is how many keys the store of a finding has.
const foundKeys = 20

// finding is a store on three memory servers, which were changed before another metadata server starts.
type finding struct {
	*copyStory
	stored map[string][]byte
}

// newFinding makes a store with foundKeys keys, and ends its metadata server.
func newFinding(t *testing.T, replicas int) *finding {
	f := &finding{copyStory: newCopyStory(t, replicas)}
	f.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		err := f.write(c, rt, 1)
		g := f.server.Snapshot()
		if g.Copies != uint64(replicas) || g.Keys != foundKeys || g.Recovered != 0 {
			t.Errorf("%d copies: a new store counts %+v", replicas, g)
		}
		return err
	})
	f.Host("cn1").Go("end", false, func(ctx verbs.Context) {
		ctx.Runtime().Sleep(time.Second)
		f.Host("md0").Crash()
		f.Host("md0").Restart()
	})
	f.run()
	f.stored = make(map[string][]byte)
	for name, b := range f.lent {
		f.stored[name] = slices.Clone(b)
	}
	return f
}

// start starts a metadata server over the memory as it is now, with a configuration that change has
// changed. It calls f, unless nil, with it, and returns its error.
func (f *finding) start(change func(cfg *meta.Config), use func(s *meta.Server)) (err error) {
	h := f.Host("md0")
	h.Go("meta", false, func(ctx verbs.Context) {
		cfg := f.cfg
		cfg.Context, cfg.Manager = ctx, h.Manager(ctx)
		for _, name := range []string{"ms0", "ms1", "ms2"} {
			cfg.Servers = append(cfg.Servers, f.Host(name).Addr())
		}
		change(&cfg)
		s, e := meta.New(cfg)
		if err = e; e != nil {
			return
		}
		if use != nil {
			use(s)
		}
		if e := s.Close(); e != nil {
			f.t.Error(e)
		}
		if e := s.Serve(); e != nil {
			f.t.Error(e)
		}
	})
	f.run()
	f.Host("md0").Crash()
	f.Host("md0").Restart()
	return err
}

// change puts the memory of all servers back to what the store had, and changes it.
func (f *finding) change(do func(memory map[string][]byte)) {
	for name, b := range f.stored {
		copy(f.lent[name], b)
	}
	do(f.lent)
}

// superblock changes the superblock in b.
func superblock(b []byte, do func(s *layout.Superblock)) {
	var s layout.Superblock
	if err := s.Parse(b); err != nil {
		panic(err)
	}
	do(&s)
	s.Put(b)
}

// aTree is the superblock of a tree of Sherman.
func aTree() []byte {
	s := tree.Superblock{
		Shape: tree.Shape{Kind: tree.Hardened, Page: 1024, Value: 8}, Generation: 1, Servers: 3, Locks: 64, Chunk: tree.DefaultChunk, Len: 1 << 30,
	}
	if err := s.Validate(); err != nil {
		panic(err)
	}
	return s.AppendTo(nil)
}

// A metadata server that starts goes on with the store that it finds. It refuses any memory of which that
// store would be destroyed, and says why; with Fresh it formats that memory.
func TestWhatAMetadataServerFinds(t *testing.T) {
	as := func(*meta.Config) {}
	type memory = map[string][]byte
	for replicas := 1; replicas <= 2; replicas++ {
		f := newFinding(t, replicas)
		for name, c := range map[string]struct {
			config  func(cfg *meta.Config)
			change  func(m memory)
			refused string // part of the error; "" if the server starts
			lost    uint64 // servers whose memory was lost
		}{
			"the store":              {as, func(memory) {}, "", 0},
			"the format unsaid":      {func(c *meta.Config) { c.Replicas = 0 }, func(memory) {}, "", 0},
			"another format":         {func(c *meta.Config) { c.Format = layout.Keyed; c.Replicas = 0 }, func(memory) {}, "another node format", 0},
			"other copies":           {func(c *meta.Config) { c.Replicas = 3 }, func(memory) {}, fmt.Sprintf("a store with %d copies", replicas), 0},
			"servers in a row":       {func(c *meta.Config) { slices.Reverse(c.Servers) }, func(memory) {}, "part 3 of a store on 3 servers", 0},
			"fewer servers":          {func(c *meta.Config) { c.Servers = c.Servers[:2] }, func(memory) {}, "on 3 servers", 0},
			"a tree on the last":     {as, func(m memory) { copy(m["ms2"], aTree()) }, "holds a Sherman tree", 0},
			"a tree on all":          {as, func(m memory) { copy(m["ms0"], aTree()); copy(m["ms1"], aTree()); copy(m["ms2"], aTree()) }, "holds a Sherman tree", 0},
			"another version":        {as, func(m memory) { m["ms1"][7]++ }, "another version of rdmalab", 0},
			"part of another store":  {as, func(m memory) { superblock(m["ms1"], func(s *layout.Superblock) { s.Store++ }) }, "another store than the servers before it", 0},
			"first of another store": {as, func(m memory) { superblock(m["ms0"], func(s *layout.Superblock) { s.Store++ }) }, "another store than the servers before it", 0},
			"the first is empty":     {as, func(m memory) { clear(m["ms0"]) }, "", 1},
			"the last is empty":      {as, func(m memory) { clear(m["ms2"]) }, "", 1},
			"only the last":          {as, func(m memory) { clear(m["ms0"]); clear(m["ms1"]) }, "", 2},
			"noise":                  {as, func(m memory) { binary.LittleEndian.PutUint64(m["ms1"], 0x1122334455667788) }, "", 1},
			"other data on all":      {as, func(m memory) { m["ms0"][0]++; m["ms1"][0]++; m["ms2"][0]++ }, "holds other data", 0},
			"other data on the last": {as, func(m memory) { clear(m["ms0"]); clear(m["ms1"]); m["ms2"][0]++ }, "holds other data", 0},
		} {
			t.Run(fmt.Sprint(replicas, " copies, ", name), func(t *testing.T) {
				f.t = t
				f.change(c.change)
				before := maps.Clone(f.lent)
				for name, b := range before {
					before[name] = slices.Clone(b)
				}
				err := f.start(c.config, func(s *meta.Server) {
					st := s.Snapshot()
					losses := c.lost
					if replicas == 2 && losses == 1 {
						losses = st.Losses // the other copies are there
					}
					if st.Losses != losses || st.Copies != uint64(replicas) || st.LostKeys == 0 && st.Keys != foundKeys || st.Recovered != st.Keys {
						t.Errorf("the server counts %+v", st)
					}
					// A third of the keys has its newest node on each server, and as many have their records there. With two copies,
					// one of two servers has the other copy.
					keys, fewest, most := uint64(foundKeys), uint64(0), uint64(0)
					switch {
					case replicas == 1 && c.lost == 2:
						keys, fewest, most = foundKeys-7, 5, 8
					case replicas == 1 && c.lost == 1, c.lost == 2:
						fewest, most = 5, 8
					}
					if st.Keys != keys || st.LostKeys < fewest || st.LostKeys > most {
						t.Errorf("%d keys, %d of them lost; want %d, %d to %d", st.Keys, st.LostKeys, keys, fewest, most)
					}
				})
				switch {
				case c.refused == "":
					if err != nil {
						t.Error(err)
					}
				case err == nil || !strings.Contains(err.Error(), c.refused):
					t.Errorf("%v; want %q", err, c.refused)
				default:
					for name, b := range f.lent { // nothing was written
						if !slices.Equal(b, before[name]) {
							t.Errorf("%s was changed", name)
						}
					}
				}
				// With Fresh, the memory is formatted in any case.
				if err := f.start(func(cfg *meta.Config) { c.config(cfg); cfg.Fresh = true }, func(s *meta.Server) {
					if st := s.Snapshot(); st.Keys != 0 || st.Losses != 0 || st.LostKeys != 0 {
						t.Errorf("a store that was formatted counts %+v", st)
					}
				}); err != nil {
					t.Error("Fresh:", err)
				}
			})
		}
	}
}
