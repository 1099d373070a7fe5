package store_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// aHost is a host of a rack in virtual time. Its jobs run on the thread of one client.
type aHost struct {
	store.Host
	ctx     verbs.Context
	manager rdmacm.Manager
	servers map[string]netip.Addr
}

func (h *aHost) Address(name string) (netip.Addr, error) { return h.servers[name], nil }

func (h *aHost) Manager() rdmacm.Manager { return h.manager }

func (h *aHost) Log() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (h *aHost) Do(_ *http.Request, _ string, f func(context.Context, verbs.Context) error) error {
	return f(context.Background(), h.ctx)
}

// A start that has not found its store makes one only if the memory of all servers is empty. Memory
// that is not may have the data of another store, or the only part that is left of the store itself.
// With Fresh, start makes the store in any case.
func TestStartMakesNoStoreOverOtherData(t *testing.T) {
	absent := errors.New("not found")
	memory := map[string][]byte{"ms0": make([]byte, 4096), "ms1": make([]byte, 4096)}
	g := kvtest.NewRack(t, "name: start\nhosts: [{name: \"ms[0-1]\", role: memory}, {name: cn0, role: compute}]", simrack.Options{},
		func(host string) memservice.Config { return memservice.Config{Buffer: memory[host]} })
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		h := &aHost{ctx: ctx, manager: m, servers: map[string]netip.Addr{"ms0": g.Servers[0], "ms1": g.Servers[1]}}
		for _, c := range []struct {
			text string
			held string // the server whose memory is not empty
			in   store.Finding
			want error
			made bool
		}{
			{"empty memory", "", store.Finding{Format: true}, nil, true},
			{"data on the first server", "ms0", store.Finding{Format: true}, passive.ErrHeld, false},
			{"data on the last server", "ms1", store.Finding{Format: true}, passive.ErrHeld, false},
			{"data, and the store is to be made in any case", "ms1", store.Finding{Format: true, Fresh: true}, nil, true},
			{"data, and the store is only to be found", "ms1", store.Finding{}, absent, false},
		} {
			for host, b := range memory {
				clear(b)
				if host == c.held {
					b[7] = 1
				}
			}
			p := store.Passive[struct{}, kv.Store]{Host: h, Store: &store.Store{Name: "mine"}, What: "table"}
			c.in.Servers = []string{"ms0", "ms1"}
			done := false
			made, err := p.Find(nil, c.in, new(struct{}), absent,
				func(passive.Config, clock.Time) error { return absent },
				func(passive.Config, clock.Time) error { done = true; return nil })
			refused := c.want != nil && err != nil && strings.Contains(err.Error(), c.want.Error())
			if refused != (c.want != nil) || !refused && err != nil || made != c.made || done != c.made {
				t.Errorf("%s: made %v, said %v, %v; want %v", c.text, done, made, err, c.want)
			}
		}
		return nil
	})
	g.Finish()
}
