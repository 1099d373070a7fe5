package nictable

import (
	"net/http"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store/memcached"
)

// tcp is the part of a server's process that serves memcached's protocol. It is idle while it has
// no address. The node's lock guards it.
type tcp struct {
	at     string // address on which the protocol is served, as start named it; "" means none
	server *memcached.Server
}

// listen serves a table on the address `at` in place of an earlier address. If `at` is "", it
// changes nothing. It returns the address on which the table is served; "" means none.
func (p *tcp) listen(at string, t memcached.Table) (string, error) {
	if at == "" || at == p.at {
		return p.at, nil
	}
	server, err := memcached.Listen(at, t)
	if err != nil {
		return p.at, control.Errorf(http.StatusConflict, "the server is up, but does not serve memcached's protocol on %s: %v", at, err)
	}
	err = p.close()
	p.at, p.server = at, server
	return at, err
}

func (p *tcp) close() (err error) {
	if p.server != nil {
		err = p.server.Close()
	}
	*p = tcp{}
	return err
}
