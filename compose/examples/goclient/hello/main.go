// Command hello writes a line to a memory server, reads it back, and counts its runs there by FETCH_ADD.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/rdmalab/rdmalab/softrnic/ipc/remote"
)

func main() {
	mem, err := remote.Dial(os.Args[1]) // uses the NIC of the host on which this program runs
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Close()
	if _, err := mem.WriteAt([]byte("hello, rack"), 0); err != nil { // RDMA WRITE
		log.Fatal(err)
	}
	line := make([]byte, 11)
	if _, err := mem.ReadAt(line, 0); err != nil { // RDMA READ
		log.Fatal(err)
	}
	before, err := mem.FetchAdd(64, 1) // FETCH_ADD, atomic also among different hosts
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s has %q; %d were here before\n", os.Args[1], line, before)
}
