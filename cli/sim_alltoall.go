package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/alltoall"
	"github.com/rdmalab/rdmalab/sim/hugepages"
	"github.com/rdmalab/rdmalab/units"
)

type allToAllFlags struct {
	hosts, leaves, spines int
	size, rate            string
	load                  alltoall.Load
}

func allToAllCmd() *cobra.Command {
	var f allToAllFlags
	cmd := &cobra.Command{
		Use:   "all-to-all",
		Short: "Let each host of a large fabric send to all others, and measure the simulator",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return asUse(err)
			}
			hugepages.Reserve()
			rep, err := alltoall.Run(cmd.Context(), f.load)
			if err != nil {
				return err
			}
			return show(cmd, rep, printAllToAll)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.hosts, "hosts", 64, "number of hosts, 2 to 1024")
	fs.IntVar(&f.leaves, "leaves", 4, "number of leaves, to which the hosts are connected in turn, 1 to 64; 1 without --spines is one switch")
	fs.IntVar(&f.spines, "spines", 1, "number of spines, 0 to 16")
	fs.StringVar(&f.size, "size", "64KiB", "size of a message, a multiple of 8 bytes, at most 1MiB")
	fs.IntVar(&f.load.Flight, "flight", 4, "messages that a host has in flight, 1 to 1023")
	fs.StringVar(&f.rate, "rate", "100gbit", "rate of each link")
	fs.Uint64Var(&f.load.Seed, "seed", 1, "the seed")
	workersFlag(fs, &f.load.Workers, "")
	outputFlag(cmd)
	return cmd
}

// check makes the load out of the flags.
func (f *allToAllFlags) check() (err error) {
	size, err := units.ParseSize(f.size)
	switch {
	case err != nil:
		return fmt.Errorf("--size: %w", err)
	case size < 8 || size > 1<<20 || size%8 != 0:
		return fmt.Errorf("--size %s: want a multiple of 8 from 8 bytes to 1 MiB", f.size)
	case f.hosts < 2 || f.hosts > 1024:
		return fmt.Errorf("--hosts %d: want 2 to 1024", f.hosts)
	case f.load.Flight < 1 || f.load.Flight > 1023:
		return fmt.Errorf("--flight %d: want 1 to 1023", f.load.Flight)
	}
	if err := checkWorkers(f.load.Workers); err != nil {
		return err
	}
	f.load.Size = int(size)
	if f.load.Rate, err = units.ParseRate(f.rate); err != nil {
		return fmt.Errorf("--rate: %w", err)
	}
	fabric := fmt.Sprintf("fabric: {leaves: %d, spines: %d}\n", f.leaves, f.spines)
	if f.leaves == 1 && f.spines == 0 {
		if fabric = ""; f.load.Workers > 0 {
			return fmt.Errorf("--workers needs several leaves; write: --leaves 4 --spines 1")
		}
	}
	file := fmt.Sprintf("name: all-to-all\nsubnet: 10.64.0.0/16\n%shosts:\n  - {name: \"cn[0-%d]\", role: compute}\n", fabric, f.hosts-1)
	f.load.Rack, err = rackfile.ParseSim("flags", []byte(file))
	return err
}

func printAllToAll(out io.Writer, r *alltoall.Report) error {
	workers := "one worker for the whole rack"
	if r.Workers > 0 {
		workers = fmt.Sprintf("%d workers, %d windows", r.Workers, r.Windows)
	}
	_, err := fmt.Fprintf(out, "%d hosts, %d switches, %d queue pairs: %d messages in %v of virtual time, %.1f Gb/s a host, %d packets sent again\n"+
		"%d events in %v with %s: %.2f million a second\nmemory of the simulation: %d bytes a host and %d bytes a queue pair\n",
		r.Hosts, r.Switches, r.QPs, r.Messages, r.Took, r.Gbps, r.Resent, r.Events, r.Wall.Round(time.Millisecond), workers, r.EventsPerSecond/1e6, r.HostBytes, r.QPBytes)
	return err
}
