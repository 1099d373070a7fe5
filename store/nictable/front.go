package nictable

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/memcached"
)

// pathFront is the path of a POST to the daemon of a client's host: the body is a frontRequest, the
// answer a frontInfo.
const pathFront = "front"

// frontRequest asks a host to serve memcached's protocol to its programs.
type frontRequest struct {
	store.ClientOptions
	// Listen is the TCP address of the front; Port is the port of the server's process.
	Listen string `json:"listen"`
	Port   int    `json:"port"`
	// Off ends the front of the host instead.
	Off bool `json:"off,omitempty"`
}

// frontInfo says where a front listens, and where the server's process does. Both are empty if it
// has ended.
type frontInfo struct {
	Listen   string `json:"listen"`
	Upstream string `json:"upstream"`
}

func (i *frontInfo) Write(out io.Writer) error {
	text := "the front has ended\n"
	if i.Listen != "" {
		text = fmt.Sprintf("memcached's text protocol is served on %s: the server's NIC answers get, its process at %s the rest\n", i.Listen, i.Upstream)
	}
	_, err := io.WriteString(out, text)
	return err
}

const defaultPort = 11211

func newFront(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	var in frontRequest
	fs.StringVar(&in.Listen, "listen", ":"+strconv.Itoa(defaultPort), "TCP address of the client's host")
	fs.IntVar(&in.Port, "port", defaultPort, "port of --memcached of the command nictable start")
	fs.BoolVar(&in.Off, "off", false, "end the front of the host")
	return func(c *store.Call) (store.Result, error) {
		if _, port, err := net.SplitHostPort(in.Listen); err != nil || port == "" {
			return nil, store.BadUse("--listen %s: use a TCP address of the host like :%d", in.Listen, defaultPort)
		}
		var err error
		if in.ClientOptions, err = c.Options(); err != nil {
			return nil, err
		}
		var out frontInfo
		if err := c.Post("", Store.Path(pathFront), in, &out); err != nil {
			return nil, err
		}
		return &out, nil
	}
}

// startFront starts or ends the front of a host.
func (n *node) startFront(_ *http.Request, in frontRequest) (out frontInfo, err error) {
	addr, err := n.host.Address(in.Server)
	if err != nil {
		return out, store.HTTPError(err)
	}
	return out, n.host.Service(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if err := n.endFront(); err != nil || in.Off {
			return err
		}
		open := func() (memcached.Reader, error) {
			ctx := n.host.Context()
			rt := ctx.Runtime()
			c, err := Open(ClientConfig{Context: ctx, Manager: n.host.Manager(), Server: addr}, rt.Now().Add(Store.JoinPatience()))
			if err != nil {
				return nil, errors.Join(Store.NotOpened(err), ctx.Close())
			}
			return &frontClient{Client: c, ctx: ctx}, nil
		}
		first, err := open() // to say now what is wrong
		if err != nil {
			return store.HTTPError(err)
		}
		maxValue := first.(*frontClient).MaxValue()
		if err := first.Close(); err != nil {
			return err
		}
		out = frontInfo{Listen: in.Listen, Upstream: net.JoinHostPort(addr.String(), strconv.Itoa(in.Port))}
		n.front, err = memcached.ListenFront(in.Listen, memcached.Front{Upstream: out.Upstream, Open: open, MaxValue: maxValue, Patience: store.Patience})
		if err != nil {
			return control.Errorf(http.StatusConflict, "no front on %s: %v", in.Listen, err)
		}
		return nil
	})
}

// endFront ends the front of a host, if there is one. The caller holds mu.
func (n *node) endFront() (err error) {
	if n.front != nil {
		err = n.front.Close()
	}
	n.front = nil
	return err
}

// frontClient is the client of one connection of a front, with the context that it owns.
type frontClient struct {
	*Client
	ctx verbs.Context
}

func (c *frontClient) Now() clock.Time { return c.ctx.Runtime().Now() }

func (c *frontClient) Close() error { return errors.Join(c.Client.Close(), c.ctx.Close()) }
