package cli

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// together makes runs of perf on several hosts keep their clients' connections until the clients of
// all hosts have ended. A switch with published rules sends the requests of all clients on the
// connection of one of them (hole 4 of swordbox/HOLES.md).
type together struct {
	key     string // perf.OneWord.Held
	working sync.WaitGroup
}

// newTogether returns a together for runs on n hosts.
func newTogether(n int) *together {
	t := &together{key: fmt.Sprintf("%016x", rand.Uint64())}
	t.working.Add(n)
	return t
}

// run runs a test on a host and returns its result. It must be called once for each host, at the same
// time. A host that fails does not make the others wait.
func (t *together) run(cmd *cobra.Command, host string, cfg *perf.Config) (*perf.Result, error) {
	ended := sync.OnceFunc(t.working.Done)
	defer ended()
	client, err := hostControl(cmd, host)
	if err != nil {
		return nil, err
	}
	cfg.Held = t.key
	ev, err := streamPerf(cmd.Context(), client, cfg, func(ev *perf.Event) error {
		if !ev.Held {
			return nil
		}
		ended()
		t.working.Wait()
		return client.Call(cmd.Context(), http.MethodPost, hostd.PathRelease, hostd.ReleaseRequest{Held: t.key}, nil)
	})
	return ev.Result, withNode(err, host)
}
