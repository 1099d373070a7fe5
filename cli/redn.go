package cli

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/redn"
)

func rednCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redn",
		Short: "Show programs made of work requests that modify each other",
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
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if x >= 1<<48 || y >= 1<<48 {
				return badUse("--x and --y: want numbers from 0 to 2^48-1")
			}
			if file != "" {
				if err := pictureFile(file); err != nil {
					return err
				}
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
				if err := writePicture(file, p.SVG()); err != nil {
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
	f.StringVarP(&file, "write", "w", "", "picture to write: its suffix is .svg, .pdf or .png (default: no picture)")
	writesFile(cmd, "write")
	f.BoolVar(&stale, "stale", false, "let the NIC read the second queue ahead, without an ENABLE; the result is then always 2")
	return cmd
}
