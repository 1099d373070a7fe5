package memcached

import "net"

// AppendItem, Serve and MaxConns are for tests.
var AppendItem = appendItem

const MaxConns = maxConns

func Serve(l net.Listener, t Table) *Server { return serve(l, t) }
