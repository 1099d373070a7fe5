package live

import (
	"context"
	"time"

	"github.com/rdmalab/rdmalab/topo/rackapi"
	"github.com/rdmalab/rdmalab/topo/top"
)

// Remote returns a function like Sample for the rack whose page a client reads.
func Remote(c *rackapi.Client) func(ctx context.Context, name string) top.Sample {
	return func(ctx context.Context, name string) top.Sample {
		r, err := c.Rack(ctx)
		if err != nil {
			return top.Sample{At: time.Now(), Rack: name, Gone: err.Error()}
		}
		return SampleOf(r)
	}
}
