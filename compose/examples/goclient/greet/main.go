// Command greet writes a greeting to a store of the rack, and reads it back.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	_ "github.com/rdmalab/rdmalab/store/all" // all stores of rdmalab
	"github.com/rdmalab/rdmalab/store/client"
)

func main() {
	ctx := context.Background()
	s, err := client.Open(ctx, os.Args[1], client.Options{}) // uses the NIC of the host on which this program runs
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Upsert(ctx, []byte("greeting"), []byte("hello, rack")); err != nil {
		log.Fatal(err)
	}
	value, err := s.Get(ctx, []byte("greeting"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s has %q\n", os.Args[1], value)
}
