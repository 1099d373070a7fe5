package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/top"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

func topCmd() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show a rack live on a full screen; keys inject faults",
		Args:  cobra.NoArgs,
		RunE: onRack(func(cmd *cobra.Command, _ []string, r *rack.Rack) error {
			style := terminalStyle()
			if once {
				return topOnce(cmd, r.Spec.Name, style)
			}
			if err := drawable(); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			cfg := live.Config{Rack: r.Spec.Name, Program: program, Style: style, In: os.Stdin, Out: os.Stdout}
			if cfg.Rack != defaultRack || os.Getenv(rackEnv) != "" {
				cfg.RackFlag = []string{"--rack", cfg.Rack}
			}
			return live.Run(cmd.Context(), cfg)
		}),
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one screen without colours, after a second, and end")
	return cmd
}

// drawable returns an error if input or output is no terminal on which a screen can be drawn.
func drawable() error {
	const instead = "; `rdmalab top --once` prints one screen, and `rdmalab status`, `rdmalab counters` and `rdmalab faults` have all of it"
	switch kind := os.Getenv("TERM"); {
	case !isTerminal(os.Stdout) || !isTerminal(os.Stdin):
		return badUse("top draws on a terminal, and reads keys from it" + instead)
	case kind == "" || kind == "dumb":
		return fmt.Errorf("top needs a terminal that can move its cursor, and TERM is %q: try TERM=xterm if yours can%s", kind, instead)
	}
	return nil
}

// terminalStyle returns the capabilities of the terminal, as the environment describes them.
func terminalStyle() top.Style {
	locale := os.Getenv("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = os.Getenv(name)
		}
	}
	utf8 := strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
	return top.Style{Plain: os.Getenv("NO_COLOR") != "", ASCII: !utf8}
}

func topOnce(cmd *cobra.Command, name string, style top.Style) error {
	style.Plain = true
	first := live.Sample(cmd.Context(), name)
	if pause(cmd.Context(), time.Second) != nil {
		return errInterrupted
	}
	second := live.Sample(cmd.Context(), name)
	if second.Gone != "" {
		return errors.New(second.Gone)
	}
	return say(cmd, "%s", top.Print(style, &first, &second))
}
