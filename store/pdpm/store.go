package pdpm

import (
	_ "embed" // of direct.md
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store"
)

//go:embed direct.md
var directHelp string

// Direct describes pDPM-Direct to the daemon of a host, the command line and `rdmalab sim`.
var Direct = store.Table[Shape, *Client]{
	Store: store.Store{
		Name: "pdpm-direct", Title: "pDPM-Direct", Note: "baseline of Clover's paper",
		Commands: store.Commands{
			Short: "Run the key-value store pDPM-Direct on the rack, a baseline of Clover's paper",
			Help:  directHelp,
		},
	},
	Format: Format, Open: Open, Flags: directFlags, Fit: fit, Draw: draw,
}

func init() { Direct.Register() }

// flags adds the flags that start has in both stores.
func flags(fs *pflag.FlagSet, s *Shape) {
	fs.IntVar(&s.Value, "value", 0, fmt.Sprintf("longest value, in bytes, 1 to %d (default %d)", maxValue, DefaultValue))
	fs.IntVar(&s.Entries, "entries", 0, "number of keys for which each memory server has room, 1 to 16777216 (default: as many as fit)")
}

func directFlags(fs *pflag.FlagSet, s *Shape) {
	flags(fs, s)
	fs.DurationVar(&s.Lease, "lease", 0, fmt.Sprintf("a client that has seen a lock held and unchanged for this time takes the holder for dead and takes over the lock (default %v)", DefaultLease))
}

func fit(w store.Workload) Shape { return Shape{Value: max(w.Config.Value, DefaultValue)} }

// draw chooses at random a table for `rdmalab sim pdpm-direct`. The table is small, so that
// operations often meet at the same keys, and has a short lease.
func draw(r *rand.Rand) (Shape, store.Trial) {
	s := Shape{Value: 16 << r.IntN(8), Entries: 1 + r.IntN(20), Lease: time.Duration(1+r.IntN(20)) * time.Millisecond}
	return s, store.Trial{
		Plan:   fmt.Sprintf("%d entries, values to %d bytes, lease %v", s.Entries, s.Value, s.Lease),
		Memory: 256 << 10, Largest: s.Value, Crashes: true, Loss: true, Judge: judge,
	}
}
