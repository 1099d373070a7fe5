package cli

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/units"
)

// drawings are the formats of `rdmalab graph`.
var drawings = map[string]func(w *bytes.Buffer, r *rackfile.Rack){"text": drawText, "mermaid": drawMermaid, "dot": drawDot, "svg": drawSVG}

func graphCmd() *cobra.Command {
	var format, file string
	cmd := &cobra.Command{
		Use:   "graph [RACK.yaml]",
		Short: "Draw the rack of a rack file",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			draw := drawings[format]
			if draw == nil {
				return badUse("--format %.40q: %swant text, mermaid, dot or svg", format, nearest.Meant(format, slices.Sorted(maps.Keys(drawings))))
			}
			of := ""
			if len(args) == 1 {
				of = args[0]
			}
			if file != "" {
				if err := pictureFile(file); err != nil {
					return err
				}
			}
			r, err := readRack(cmd, of)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if file != "" {
				drawSVG(&b, r)
				return writePicture(file, b.Bytes())
			}
			draw(&b, r)
			_, err = io.Copy(cmd.OutOrStdout(), &b)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "how the rack is drawn: text, mermaid, dot or svg")
	complete(cmd, "format", "text", "mermaid", "dot", "svg")
	cmd.Flags().StringVarP(&file, "write", "w", "", "draw a picture into this file: its suffix is .svg, .pdf or .png")
	writesFile(cmd, "write")
	return cmd
}

// faultsOf returns the faults of the rack file on a host's link.
func faultsOf(r *rackfile.Rack, host string) (list []string) {
	for _, f := range r.Faults {
		if f.Link == host {
			list = append(list, strings.Replace(f.String(), " --link "+host, "", 1))
		}
	}
	return list
}

// described returns what a host is, in short lines: role, addresses, memory.
func described(h *rackfile.Host) []string {
	lines := []string{string(h.Role), h.IPv4.String()}
	if h.Memory > 0 {
		lines = append(lines, units.FormatSize(h.Memory))
	}
	return lines
}

func drawText(w *bytes.Buffer, r *rackfile.Rack) {
	fmt.Fprintf(w, "rack %s: MTU %d, %v, %v\nswitch, program %s\n", r.Name, r.LinkMTU, r.Subnet, r.Subnet6, r.Switch.Program)
	for i := range r.Switch.Rules {
		fmt.Fprintf(w, "│   rule %s\n", &r.Switch.Rules[i])
	}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		corner, side := "├", "│"
		if i == len(r.Hosts)-1 {
			corner, side = "└", " "
		}
		fmt.Fprintf(w, "%s── %-15s %s\n", corner, h.Name, strings.Join(append(described(h), h.IPv6.String()), "  "))
		for _, f := range faultsOf(r, h.Name) {
			fmt.Fprintf(w, "%s   fault %s\n", side, f)
		}
	}
}

func drawMermaid(w *bytes.Buffer, r *rackfile.Rack) {
	fmt.Fprintf(w, "graph TD\n  switch{{\"switch<br>%s\"}}\n", strings.Join(append([]string{r.Switch.Program}, ruleTexts(r)...), "<br>"))
	for i := range r.Hosts {
		h := &r.Hosts[i]
		fmt.Fprintf(w, "  h%d[\"%s\"]\n", i, strings.Join(append([]string{h.Name}, described(h)...), "<br>"))
		if list := faultsOf(r, h.Name); len(list) > 0 {
			fmt.Fprintf(w, "  switch ---|\"%s\"| h%d\n", strings.Join(list, "<br>"), i)
		} else {
			fmt.Fprintf(w, "  switch --- h%d\n", i)
		}
	}
}

func drawDot(w *bytes.Buffer, r *rackfile.Rack) {
	fmt.Fprintf(w, "graph %q {\n  node [shape=box]\n  switch [shape=hexagon label=%s]\n", r.Name, dotLines(append([]string{"switch", r.Switch.Program}, ruleTexts(r)...)))
	for i := range r.Hosts {
		h := &r.Hosts[i]
		fmt.Fprintf(w, "  h%d [label=%s]\n  switch -- h%d", i, dotLines(append([]string{h.Name}, described(h)...)), i)
		if list := faultsOf(r, h.Name); len(list) > 0 {
			fmt.Fprintf(w, " [label=%s]", dotLines(list))
		}
		w.WriteByte('\n')
	}
	w.WriteString("}\n")
}

func ruleTexts(r *rackfile.Rack) (list []string) {
	for i := range r.Switch.Rules {
		list = append(list, r.Switch.Rules[i].String())
	}
	return list
}

// dotLines returns a string of the language dot with several lines.
func dotLines(lines []string) string {
	text := strings.Join(lines, "\n")
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
