package cli

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/redn"
)

func rednCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redn",
		Short: "Show programs made of work requests that modify each other",
		Long: "redn shows programs that a NIC executes without a processor (RedN, NSDI 2022). Such a program consists of work\n" +
			"requests in a send queue whose entries lie in registered memory; a work request can WRITE or CAS the fields of\n" +
			"later ones, so that conditions and loops are possible. redn needs neither a rack nor root: the NIC runs in virtual\n" +
			"time.",
		Example: "  rdmalab redn trace    # a condition: each work request, and what other requests changed in it\n" +
			"  rdmalab redn turing   # a Turing machine: its steps and its tape",
	}
	cmd.AddCommand(rednTraceCmd(), rednTuringCmd())
	return cmd
}

func rednTraceCmd() *cobra.Command {
	var x, y uint64
	var stale bool
	var file string
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Execute a condition and print each work request, with the bytes that other requests have changed",
		Long: "trace executes the program \"if x == y, the result is 1, else it is 2\" on a NIC in virtual time and prints each work\n" +
			"request when the NIC executes it. A line has the virtual time, the queue, the index of the request in the queue,\n" +
			"and the request. Lines below it show the bytes that other requests have changed since the request was posted. The\n" +
			"last line has the result.\n\n" +
			"The program has two queues. The second one has two requests: a NOP, and a WRITE of the result 2. For each of them,\n" +
			"the first queue READs x into the request, and compares it with y by a CAS. If they are equal, the CAS turns the NOP\n" +
			"into a WRITE of the result 1, and the WRITE of 2 into a NOP. Then the first queue lets the NIC execute the second\n" +
			"one (ENABLE). With --stale there is no ENABLE: the NIC reads the requests of the second queue ahead, before they are\n" +
			"changed. So the condition has no effect, and the result is 2.\n\n" +
			"With -w, trace also writes a picture of the same, as SVG: a column for each queue, and arrows from a request to\n" +
			"those that it changes or enables.",
		Example: "  rdmalab redn trace\n" +
			"  rdmalab redn trace --x 3 --y 4\n" +
			"  rdmalab redn trace --stale\n" +
			"  rdmalab redn trace -w condition.svg",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if x >= 1<<48 || y >= 1<<48 {
				return badUse("--x and --y: want numbers from 0 to 2^48-1")
			}
			m, err := redn.NewMachine(!stale)
			if err != nil {
				return err
			}
			d := m.Memory
			binary.LittleEndian.PutUint64(d, x)
			d[16], d[24] = 1, 2
			m.Main.IfElse(m.Second, m.Data.At(0, 8), redn.Operand(y), m.Data.At(8, 8), m.Data.At(16, 8), m.Data.At(24, 8), m.Data.At(32, 8))
			out := cmd.OutOrStdout()
			var steps []redn.Step
			var failed error
			err = m.Observe(func(s *redn.Step) {
				_, err := fmt.Fprint(out, s)
				failed = cmp.Or(failed, err)
				steps = append(steps, *s)
			})
			if err := cmp.Or(err, failed); err != nil {
				return err
			}
			result := binary.LittleEndian.Uint64(d[8:])
			if file != "" {
				p := m.Picture(fmt.Sprintf("if %d == %d, the result is 1, else it is 2", x, y), steps)
				p.Notes = append(p.Notes, fmt.Sprintf("result: %d", result))
				if err := os.WriteFile(file, p.SVG(), 0o644); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(out, "result: %d\n", result)
			return err
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&x, "x", 5, "x of the condition, which the program reads from memory; 0 to 2^48-1")
	f.Uint64Var(&y, "y", 5, "y of the condition, a constant of the program; 0 to 2^48-1")
	f.StringVarP(&file, "write", "w", "", "SVG file to write a picture to (default: no picture)")
	f.BoolVar(&stale, "stale", false, "let the NIC read the second queue ahead, without an ENABLE; the result is then always 2")
	return cmd
}
