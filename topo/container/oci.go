package container

import "encoding/json"

// Media types of the OCI image specification (image-spec 1.1, media-types.md).
const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
)

// ociDescriptor points to a blob of an OCI layout.
type ociDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func described(mediaType string, blob []byte) ociDescriptor {
	return ociDescriptor{MediaType: mediaType, Digest: "sha256:" + hash(blob), Size: len(blob)}
}

// archiveOf makes the archive of an image for a processor from its configuration and its one layer, in the layout of
// the OCI image specification (image-layout.md), which skopeo, podman, containerd, registries' tools and Docker from
// version 25 on read. Older versions of `docker load` read manifest.json, which names the same blobs. The same image
// gives the same bytes.
func archiveOf(config, layer []byte, arch string) ([]byte, error) {
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest,
		"config": described(ociConfig, config), "layers": []ociDescriptor{described(ociLayer, layer)},
	})
	if err != nil {
		return nil, err
	}
	entry := described(ociManifest, manifest)
	entry.Platform = map[string]string{"architecture": arch, "os": "linux"}
	entry.Annotations = map[string]string{"io.containerd.image.name": ImageName, "org.opencontainers.image.ref.name": ImageName}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []ociDescriptor{entry}})
	if err != nil {
		return nil, err
	}
	older, err := json.Marshal([]map[string]any{{"Config": blobPath(config), "RepoTags": []string{ImageName}, "Layers": []string{blobPath(layer)}}})
	if err != nil {
		return nil, err
	}
	blob := func(data []byte) file { return file{blobPath(data), 0o644, data} }
	return tarOf(
		file{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, file{"index.json", 0o644, index},
		blob(manifest), blob(config), blob(layer), file{"manifest.json", 0o644, older},
	)
}

// blobPath returns the path of a blob in the layout.
func blobPath(data []byte) string { return "blobs/sha256/" + hash(data) }
