package passive_test

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/passive"
)

// When a client connects again, the server ends its former connection, so that nothing is executed
// that was sent on it. The server cannot notice by itself that the client has given it up.
func TestFormerConnectionEnds(t *testing.T) {
	const owner = 7
	g := kvtest.NewRack(t, "name: passive\nhosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]", simrack.Options{},
		func(string) memservice.Config { return memservice.Config{Buffer: make([]byte, 4096)} })
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		c, err := passive.Open(passive.Config{Context: ctx, Manager: m, Servers: g.Servers}, 8)
		if err != nil {
			return err
		}
		for n := range 3 {
			err := c.Become(owner) // ends the client's end of a connection
			if err == nil {
				err = c.Write(0, 0, make([]byte, 8), kvtest.Soon(rt))
			}
			if err != nil {
				return errors.Join(err, c.Close())
			}
			if h, err := memservice.WhoIs(ctx, m, g.Servers[0], owner, kvtest.Soon(rt)); err != nil || h.QPs != 1 {
				t.Errorf("the server has %d connections of the client after it has connected %d times, %v; want 1", h.QPs, n+1, err)
			}
		}
		return c.Close()
	})
	g.Finish()
}
