package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/topo/rack"
)

func (w *writer) readMe(r *rack.Rack, why *Reason) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Rack %q, seed %d, at %s", r.Spec.Name, r.Spec.Seed, time.Now().UTC().Format(time.RFC3339))
	if why.Version != "" {
		line("rdmalab %s", why.Version)
	}
	if why.What != "" {
		line("\nWhat failed:\n  %s", why.What)
	}
	if why.Replay != "" {
		line("\nTo repeat it:\n  %s", why.Replay)
	}
	line("\nNames, addresses and the random choices of faults come from the rack file and its seed; %s has them resolved.", SpecFile)
	line("\nWhere to look:")
	if slices.Contains(w.have, Packets) {
		line("  rdmalab dump %s          the last packets; a comment says what a fault or the switch did", Packets)
	}
	line("  switch/faults.json                   fault rules, and how many frames each has hit")
	line("  HOST/status.json                     NIC, queue pairs, programs")
	line("  log/HOST.log                         messages of the daemons")
	slices.Sort(w.have)
	line("\nFiles:\n  %s", strings.Join(w.have, "\n  "))
	if len(w.lack) > 0 {
		slices.Sort(w.lack)
		line("\nMissing:\n  %s", strings.Join(w.lack, "\n  "))
	}
	if why.Output != "" {
		line("\nOutput of the failed command:\n%s", why.Output)
	}
	if err := os.WriteFile(filepath.Join(w.dir, ReadMe), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return nil
}
