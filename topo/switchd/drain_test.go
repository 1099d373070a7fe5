package switchd

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const slowFile = `
name: slow
switch:
  program: swordbox
hosts:
  - {name: h0, role: memory}
  - {name: h1, role: compute}
  - {name: h2, role: compute}
`

// Frames that wait in a rule of action buffer all leave, in their order, when the rule is removed or
// the program is replaced, although they are more than an egress queue has room for.
func TestNoWaitingFrameIsLost(t *testing.T) {
	for name, end := range map[string]func(d *Daemon) error{
		"rule removed":     func(d *Daemon) error { return d.programs.RemoveRule("slow") },
		"program replaced": func(d *Daemon) error { return d.programs.Load(ProgramText{Name: rackfile.ProgramForward}) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := rackfile.Parse([]byte(slowFile))
			if err != nil {
				t.Fatal(err)
			}
			p, err := apps.New(s, apps.Config{Rand: rand.New(rand.NewPCG(1, 2))})
			if err != nil {
				t.Fatal(err)
			}
			var host *memcable.Port
			onBench(t, func(c *Config) {
				c.Program, c.Self, c.Described, c.Queue = p, apps.Self(s), s, 100
				open := c.Open
				c.Open = func(i int, l Link) (io packetio.Port, err error) {
					if i != 1 {
						return open(i, l)
					}
					var end *memcable.Port
					host, end = memcable.Pair(memcable.Config{Depth: 1 << 12})
					return end, nil
				}
				c.Load = loader(func() *rackfile.Rack { return s }, nil, filesOf(t.TempDir()), slog.New(slog.NewTextHandler(t.Output(), nil)))
			}, func(b *bench) {
				b.hosts[1] = host
				b.know()
				if _, err := b.programs.AddRule(RuleText{Rule: "id=slow server=h1 action=buffer ring=h0 rate=8Kbit high=1000"}); err != nil {
					b.t.Error(err)
					return
				}
				const each, bursts = 50, 30 // the second half waits for a connection to the ring
				for i := range bursts {
					var list [][]byte
					for k := range each {
						f := frame(2, 1)
						binary.BigEndian.PutUint16(f[14:], uint16(i*each+k))
						list = append(list, f)
					}
					b.send(2, list...)
				}
				if err := end(b.Daemon); err != nil {
					b.t.Error(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				got := slices.DeleteFunc(b.got(1), func(f []byte) bool { return !bytes.Equal(f[12:14], frame(2, 1)[12:14]) })
				if len(got) != each*bursts {
					c, _ := b.Counters()
					b.t.Errorf("%d frames of %d have left; dropped: %v", len(got), each*bursts, c.Ports[1].Drops)
				}
				for i, f := range got {
					if n := int(binary.BigEndian.Uint16(f[14:])); len(got) == each*bursts && n != i {
						b.t.Errorf("frame %d comes as number %d", n, i)
						break
					}
				}
				if c, _ := b.Counters(); c.Ports[1].Drops[pipeline.ReasonQueueFull] != 0 {
					b.t.Errorf("dropped: %v", c.Ports[1].Drops)
				}
			})
		})
	}
}
