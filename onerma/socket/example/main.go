// Command example writes a text into memory that the host with the given address lends, reads it
// back, and prints it. It runs on a host of a rack with 1RMA NICs:
//
//	go build -o /tmp/example ./onerma/socket/example
//	rdmalab exec cn0 -- /tmp/example 10.77.0.4 hello
package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/rdmalab/rdmalab/onerma/socket"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 || args[2] == "" {
		return fmt.Errorf("usage: %s ADDRESS TEXT", args[0])
	}
	addr, err := netip.ParseAddr(args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := socket.Open(ctx, "")
	if err != nil {
		return err
	}
	defer c.Close() // an error does not matter: the end of the program frees everything, too
	text := args[2]
	local, err := c.Register(ctx, len(text), verbs.LocalWrite)
	if err != nil {
		return err
	}
	peer, err := c.Borrow(ctx, addr, len(text))
	if err != nil {
		return err
	}
	t := socket.Transfer{Remote: peer, Length: len(text), Local: local}
	copy(local.Bytes(), text)
	if _, err := c.Write(ctx, t); err != nil {
		return err
	}
	clear(local.Bytes())
	if _, err := c.Read(ctx, t); err != nil {
		return err
	}
	fmt.Printf("%s has %q\n", addr, local.Bytes())
	return nil
}
