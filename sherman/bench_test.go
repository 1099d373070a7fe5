package sherman_test

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// BenchmarkBulkLoad loads b.N keys into a simulated rack; -benchtime 10000000x loads ten million.
func BenchmarkBulkLoad(b *testing.B) {
	s, err := rackfile.Parse([]byte(rackYAML))
	if err != nil {
		b.Fatal(err)
	}
	r, err := simrack.New(s, simrack.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	g := &rig{Rack: r, region: 8<<20 + 20*b.N}
	for _, name := range []string{"ms0", "ms1"} {
		g.memory(name)
		g.servers = append(g.servers, g.Host(name).Addr())
	}
	h := g.Host("cn0")
	h.Go("load", false, func(ctx verbs.Context) {
		cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx)}
		end := ctx.Runtime().Now().Add(time.Hour)
		if _, err := sherman.Format(cfg, g.servers, sherman.FormatConfig{}, end); err != nil {
			b.Error(err)
		}
		i, v := uint64(0), make([]byte, 8)
		b.ReportAllocs()
		b.ResetTimer()
		st, err := sherman.BulkLoad(cfg, g.servers, func() (uint64, []byte, bool) {
			i++
			return i, v, i <= uint64(b.N)
		}, end)
		if err != nil || st.Keys != uint64(b.N) {
			b.Error(st, err)
		}
	})
	if err := r.Run(); err != nil {
		b.Fatal(err)
	}
}
