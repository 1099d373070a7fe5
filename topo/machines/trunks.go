package machines

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// trunksWait bounds how long the trunks of a rack may take to work.
const trunksWait = 10 * time.Second

// AwaitTrunks waits until the switches of the rack know that all trunks work, unless the rack file gives
// a trunk a fault. The error names those that do not.
func (c *Client) AwaitTrunks(ctx context.Context) error {
	if slices.ContainsFunc(c.Rack.Faults, func(f fault.Rule) bool { _, trunk := c.Rack.TrunkNamed(f.Link); return trunk }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, trunksWait)
	defer cancel()
	for {
		down := c.trunksDown(ctx)
		if len(down) == 0 {
			return nil
		}
		select {
		case <-time.After(trunksPoll):
		case <-ctx.Done():
			t := down[0]
			near, far := c.Rack.MachineOf(t.Leaf), c.Rack.MachineOf(t.Far)
			local, peer, _ := c.Rack.Remote(t, t.Leaf)
			carrier, instead := c.Rack.Fabric.CarrierName(), ""
			if carrier == rackfile.CarrierUDP {
				instead = " (`carrier: tcp` in fabric goes without UDP)"
			}
			return fmt.Errorf("%d of %d are down, such as %s between %s (%[8]s %[5]s) and %[6]s (%[8]s %[7]s): look whether a firewall drops them%[10]s, and at `rdmalab logs %[9]s`",
				len(down), len(c.Rack.Trunks()), t.Name(), near, local, far, peer, carrier, t.Leaf, instead)
		}
	}
}

// trunksPoll is the pause between two looks at the trunks.
const trunksPoll = 20 * time.Millisecond

// trunksDown lists the trunks that do not work, as their leaves say.
func (c *Client) trunksDown(ctx context.Context) (list []rackfile.Trunk) {
	up := make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range c.Rack.SwitchNames() {
		wg.Go(func() {
			var s struct {
				Trunks []struct {
					Name string `json:"name"`
					Up   bool   `json:"up"`
				} `json:"trunks"`
			}
			_ = control.NewClient(c.Paths.Socket(name)).Call(ctx, http.MethodGet, "/status", nil, &s) // no answer: no trunk works
			mu.Lock()
			defer mu.Unlock()
			for _, t := range s.Trunks {
				if t.Up {
					up[t.Name]++
				}
			}
		})
	}
	wg.Wait()
	for _, t := range c.Rack.Trunks() {
		if up[t.Name()] < len(c.Rack.SwitchNames()) {
			list = append(list, t)
		}
	}
	return list
}
