package swordbox

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Adopted is the body of POST /connections. It describes a connection of the switch that another
// program has set up. Its fields have the meaning of those of switchconn.Shared.
type Adopted struct {
	// Server is the name of a host, or an address.
	Server    string   `json:"server"`
	Shard     int      `json:"shard"`
	ServerQPN wire.QPN `json:"serverQPN"`
	OwnQPN    wire.QPN `json:"ownQPN"`
	SendPSN   wire.PSN `json:"sendPSN"`
	RecvPSN   wire.PSN `json:"recvPSN"`
	MTU       int      `json:"mtu"`
	Depth     int      `json:"depth"`
	// MAC is required if the server is no host of the rack.
	MAC *wire.MAC `json:"mac,omitempty"`
}

// Requests lists the control requests that the program serves.
func Requests() []handler.Request {
	return []handler.Request{
		{Pattern: "GET /connections", Doc: "flows, reports of handlers, the switch's connections", Do: serve(func(p *Program, c *handler.Call) (any, error) {
			return p.Report(c.Now), nil
		})},
		{Pattern: "POST /connections", Doc: "adopts a switch's connection that was made elsewhere", Do: serve((*Program).adopt)},
		{Pattern: "DELETE /connections/{server}/{shard}", Doc: "ends a switch's connection", Do: serve((*Program).disown)},
		{Pattern: "GET /lists/{name}", Doc: "a listing of a handler", Do: serve((*Program).list)},
		{Pattern: "POST /entries", Doc: "adds entries to the table of a rule, or removes them", Do: serve(func(p *Program, c *handler.Call) (any, error) { return p.tables().entries(c) })},
		{Pattern: "POST /entries/page", Doc: "a part of the table of a rule", Do: serve(func(p *Program, c *handler.Call) (any, error) { return p.tables().page(c) })},
	}
}

// serve wraps f for a Request. The wrapped function calls f if the running program is a *Program;
// otherwise it returns ErrNoRules.
func serve(f func(p *Program, c *handler.Call) (any, error)) func(pipeline.Program, *handler.Call) (any, error) {
	return func(p pipeline.Program, c *handler.Call) (any, error) {
		if mine, ok := p.(*Program); ok {
			return f(mine, c)
		}
		return nil, handler.ErrNoRules
	}
}

// list returns the listing that the request names, with the entries of all handlers that have it.
func (p *Program) list(c *handler.Call) (any, error) {
	all, known := []any{}, false
	for _, h := range p.parts.all {
		for _, l := range h.Kind().Listings {
			if l.Name != c.Value("name") {
				continue
			}
			known = true
			if list := reflect.ValueOf(l.Items(h, c.Now)); list.IsValid() {
				for i := range list.Len() {
					all = append(all, list.Index(i).Interface())
				}
			}
		}
	}
	if !known {
		return nil, handler.Gone(fmt.Errorf("there is no listing %.40q", c.Value("name")))
	}
	return all, nil
}

var errNoConnections = errors.New("the program of this switch has no connections")

// adopt handles the request of `rdmalab switch connections adopt`: it gives the switch a connection
// that another program has set up. The switch uses it like the connections that it has made itself.
func (p *Program) adopt(c *handler.Call) (any, error) {
	var a Adopted
	if err := c.Body(&a); err != nil {
		return nil, err
	}
	addr, err := c.Address(a.Server)
	if err != nil {
		return nil, err
	}
	s := switchconn.Shared{
		Key: switchconn.Key{Server: addr, Shard: a.Shard}, ServerQPN: a.ServerQPN, OwnQPN: a.OwnQPN,
		SendPSN: a.SendPSN, RecvPSN: a.RecvPSN, MTU: a.MTU, Depth: a.Depth,
	}
	if a.MAC != nil {
		s.To.Eth.Dst = *a.MAC
	}
	o := p.cfg.Own
	if o == nil {
		return nil, handler.Refused(errNoConnections)
	}
	if err := o.dialer.Adopt(s); err != nil {
		return nil, handler.Refused(err)
	}
	c.Step(p.Tick)
	for _, i := range o.dialer.List() {
		if i.Key == s.Key {
			return i, nil
		}
	}
	return switchconn.Info{}, nil
}

// disown ends a switch's connection that is up, usually an adopted one. If rules need a connection to
// that server, the dialer then makes one.
func (p *Program) disown(c *handler.Call) (any, error) {
	server, shard := c.Value("server"), c.Value("shard")
	addr, err := c.Address(server)
	if err != nil {
		return nil, err
	}
	o := p.cfg.Own
	if o == nil {
		return nil, handler.Refused(errNoConnections)
	}
	for _, i := range o.dialer.List() {
		if i.Server != addr || fmt.Sprint(i.Shard) != shard {
			continue
		}
		if i.Shared == nil {
			return nil, handler.Refused(fmt.Errorf("the connection to %.60s, shard %.10s, is %v: only one that is up can be ended", server, shard, i.State))
		}
		c.Step(func(ctx *pipeline.Ctx) {
			o.dialer.Again(ctx, i.Key, i.Shared.Generation)
			p.Tick(ctx)
		})
		return struct{}{}, nil
	}
	return nil, handler.Gone(fmt.Errorf("there is no connection to %.60s, shard %.10s", server, shard))
}
