package nictable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/memcached"
)

// pathItem is the path of a POST to the host's daemon: the body is an itemRequest, the answer an
// Item.
const pathItem = "item"

// itemRequest asks a host to read an item of memcached's protocol. The host opens a client for it.
type itemRequest struct {
	store.ClientOptions
	Key      string        `json:"key"`
	Patience time.Duration `json:"patienceNs"`
}

// Item is an item of memcached's protocol that a client has read by RDMA.
type Item struct {
	Key   string        `json:"key"`
	Flags uint32        `json:"flags"`
	Data  []byte        `json:"data"`
	RTTs  int           `json:"roundTrips"`
	Took  time.Duration `json:"tookNs"`
}

func (i *Item) Write(out io.Writer) error {
	_, err := out.Write(append(i.Data, '\n'))
	return err
}

func newItem(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	var in itemRequest
	fs.DurationVar(&in.Patience, "patience", store.Patience, "time limit of the GET")
	return func(c *store.Call) (store.Result, error) {
		in.Key = c.Arg
		var err error
		if in.ClientOptions, err = c.Options(); err != nil {
			return nil, err
		}
		var out Item
		if err := c.Post("", Store.Path(pathItem), in, &out); err != nil {
			return nil, err
		}
		return &out, nil
	}
}

func (n *node) item(r *http.Request, in itemRequest) (out Item, err error) {
	clients, err := n.Clients(in.ClientOptions)
	if err != nil {
		return out, store.HTTPError(err)
	}
	err = n.host.Do(r, "nictable item", func(_ context.Context, v verbs.Context) error {
		rt, list := v.Runtime(), clients(v)
		c, err := list.Open(rt.Now().Add(max(in.Patience, Store.JoinPatience())))
		if err != nil {
			return errors.Join(Store.NotOpened(err), list.Close())
		}
		began := rt.Now()
		out.Key = in.Key
		out.Flags, out.Data, err = memcached.Get(c, []byte(in.Key), nil, began.Add(in.Patience))
		out.RTTs, out.Took = c.Last().RTTs, rt.Now().Sub(began)
		return errors.Join(err, c.Close(), list.Close())
	})
	return out, store.HTTPError(err)
}
