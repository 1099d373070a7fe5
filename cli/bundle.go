package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/bundle"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// bundlesEnv is the environment variable that names the folder in which a failed `rdmalab run` or
// `rdmalab perf` leaves a bundle, a folder with the state of the rack. If it is not set, a failed
// command leaves none.
const bundlesEnv = "RDMALAB_BUNDLES"

func bundleCmd() *cobra.Command {
	var why bundle.Reason
	cmd := &cobra.Command{
		Use: "bundle [DIR]", Annotations: map[string]string{writesNote: outFolder},
		Short: "Collect the rack's state, counters, logs and last packets in a folder",
		Args:  cobra.MaximumNArgs(1),
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			dir := filepath.Join("out", "bundles", bundleName(r, "bundle"))
			if len(args) == 1 {
				dir = args[0]
			}
			why.Version = readVersion().Version
			if err := bundle.Write(cmd.Context(), r, dir, why); err != nil {
				return err
			}
			client, several, err := carried(cmd)
			if err == nil && several {
				err = client.Logs(cmd.Context(), filepath.Join(dir, "log"))
			}
			if err != nil {
				return fmt.Errorf("logs of the machines: %w", err)
			}
			return say(cmd, "%s", filepath.Join(dir, bundle.ReadMe))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&why.What, "what", "", "what has failed; a sentence for README.txt (default: none)")
	f.StringVar(&why.Replay, "replay", "", "the command line that repeats the failure, for README.txt (default: none)")
	return cmd
}

// bundleName makes the name of a bundle's folder from the name of the rack, the command that has
// failed (or "bundle") and the time.
func bundleName(r *rack.Rack, what string) string {
	return strings.Join([]string{r.Spec.Name, what, time.Now().UTC().Format("20060102-150405.000")}, "-")
}

// bundleFailure gets the error `failed` of a command, and returns it. If bundlesEnv is set and the
// error is not about the command line, it first writes a bundle and adds the bundle's path to the
// error.
func bundleFailure(cmd *cobra.Command, failed error) error {
	folder := os.Getenv(bundlesEnv)
	if failed == nil || folder == "" || isUse(failed) {
		return failed
	}
	r, err := openRack(cmd)
	if err != nil {
		return failed // the failure of the command is more important than the missing bundle
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Minute)
	defer cancel()
	dir := filepath.Join(folder, bundleName(r, cmd.Name()))
	line := "rdmalab --rack " + r.Spec.Name + " " + strings.Join(os.Args[1:], " ")
	why := bundle.Reason{What: line, Replay: line, Output: failed.Error(), Version: readVersion().Version}
	if err := bundle.Write(ctx, r, dir, why); err != nil {
		return fmt.Errorf("%w\nno bundle: %w", failed, err)
	}
	return fmt.Errorf("%w\nwhat is known of the rack: %s", failed, filepath.Join(dir, bundle.ReadMe))
}

// withBundle makes cmd and the commands below it write a bundle when they fail.
func withBundle(cmd *cobra.Command) *cobra.Command {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return bundleFailure(cmd, run(cmd, args)) }
	}
	for _, c := range cmd.Commands() {
		withBundle(c)
	}
	return cmd
}
