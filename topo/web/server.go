package web

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a server. All times also bound what a slow client can hold.
const (
	// maxConnections are open at a time; further ones wait until one ends.
	maxConnections = 256
	maxHeader      = 16 << 10
	headerWait     = 5 * time.Second
	readWait       = 10 * time.Second
	writeWait      = 30 * time.Second
	idleWait       = time.Minute
	// closeWait is how long the handlers may take to end with the server.
	closeWait = 5 * time.Second
)

// Listen opens a TCP port. The address is HOST:PORT; without a host it is that of the loopback
// interface, and port 0 is any free one.
func Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address to listen on: write one like 127.0.0.1:9090", address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("%w; --listen HOST:PORT chooses another address, and port 0 any free one", err)
	}
	return l, nil
}

// Serve serves h on l until ctx ends, and closes l. It bounds the number of connections, the length of
// headers, and the time of everything that a client does. The context of requests ends with ctx.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerWait, ReadTimeout: readWait, WriteTimeout: writeWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: log.New(quiet{}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	err := srv.Shutdown(within)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // a client that reads slowly is cut off
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// quiet drops what net/http says of clients: they are not the project's, and may fill the terminal.
type quiet struct{}

func (quiet) Write(b []byte) (int, error) { return len(b), nil }
