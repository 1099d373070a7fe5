package memcached

import "net"

// AppendItem, Serve and MaxConns are for tests.
var AppendItem = appendItem

const MaxConns = maxConns

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

func Serve(l net.Listener, t Table) *Server { return serve(l, t) }
