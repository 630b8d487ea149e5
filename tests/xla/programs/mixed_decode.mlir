module @mlxcel {
func.func public @main(%1: tensor<16xi32>,
    %2: tensor<576x32xf32> {tf.aliasing_output = 0 : i32},
    %3: tensor<576x32xf32> {tf.aliasing_output = 1 : i32},
    %4: tensor<3x192xf32> {tf.aliasing_output = 2 : i32},
    %5: tensor<3x256xf32> {tf.aliasing_output = 3 : i32},
    %11: tensor<96x64xf32>,
    %17: tensor<8x64xf32>,
    %22: tensor<8xf32>,
    %116: tensor<512x64xui8>,
    %117: tensor<512x2xbf16>,
    %118: tensor<512x2xbf16>,
    %146: tensor<512x32xui8>,
    %147: tensor<512x1xbf16>,
    %148: tensor<512x1xbf16>,
    %188: tensor<256xf32>,
    %229: tensor<2xf32>)
    -> (tensor<576x32xf32>, tensor<576x32xf32>, tensor<3x192xf32>, tensor<3x256xf32>, tensor<1x1xi32>) {
  %6 = stablehlo.slice %1 [0:1] : (tensor<16xi32>) -> tensor<1xi32>
  %7 = stablehlo.constant dense<96> : tensor<1xi32>
  %8 = stablehlo.compare GE, %6, %7, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %9 = stablehlo.constant dense<0> : tensor<1xi32>
  %10 = stablehlo.select %8, %9, %6 : tensor<1xi1>, tensor<1xi32>
  %12 = "stablehlo.gather"(%11, %10) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<96x64xf32>, tensor<1xi32>) -> tensor<1x64xf32>
  %13 = stablehlo.constant dense<2.000000000e+00> : tensor<1x64xf32>
  %14 = stablehlo.multiply %12, %13 : tensor<1x64xf32>
  %15 = stablehlo.reshape %14 : (tensor<1x64xf32>) -> tensor<1x1x64xf32>
  %16 = stablehlo.reshape %15 : (tensor<1x1x64xf32>) -> tensor<1x64xf32>
  %18 = stablehlo.dot_general %16, %17, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x64xf32>, tensor<8x64xf32>) -> tensor<1x8xf32>
  %19 = stablehlo.reshape %18 : (tensor<1x8xf32>) -> tensor<1x1x8xf32>
  %20 = stablehlo.reshape %19 : (tensor<1x1x8xf32>) -> tensor<1x8xf32>
  %21 = stablehlo.logistic %20 : tensor<1x8xf32>
  %23 = stablehlo.broadcast_in_dim %22, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
  %24 = stablehlo.add %21, %23 : tensor<1x8xf32>
  %25 = stablehlo.compare EQ, %24, %24, FLOAT : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xi1>
  %26 = stablehlo.constant dense<0xFF800000> : tensor<1x8xf32>
  %27 = stablehlo.select %25, %24, %26 : tensor<1x8xi1>, tensor<1x8xf32>
  %28 = stablehlo.reshape %27 : (tensor<1x8xf32>) -> tensor<4x2xf32>
  %29 = stablehlo.broadcast_in_dim %28, dims = [0, 1] : (tensor<4x2xf32>) -> tensor<4x2x2xf32>
  %30 = stablehlo.broadcast_in_dim %28, dims = [0, 2] : (tensor<4x2xf32>) -> tensor<4x2x2xf32>
  %31 = stablehlo.iota dim = 1 : tensor<4x2x2xi32>
  %32 = stablehlo.iota dim = 2 : tensor<4x2x2xi32>
  %33 = stablehlo.compare LT, %32, %31, SIGNED : (tensor<4x2x2xi32>, tensor<4x2x2xi32>) -> tensor<4x2x2xi1>
  %34 = stablehlo.compare GT, %30, %29, FLOAT : (tensor<4x2x2xf32>, tensor<4x2x2xf32>) -> tensor<4x2x2xi1>
  %35 = stablehlo.compare EQ, %30, %29, FLOAT : (tensor<4x2x2xf32>, tensor<4x2x2xf32>) -> tensor<4x2x2xi1>
  %36 = stablehlo.and %35, %33 : tensor<4x2x2xi1>
  %37 = stablehlo.or %34, %36 : tensor<4x2x2xi1>
  %38 = stablehlo.convert %37 : (tensor<4x2x2xi1>) -> tensor<4x2x2xi32>
  %39 = stablehlo.constant dense<0> : tensor<i32>
  %40 = stablehlo.reduce(%38 init: %39) applies stablehlo.add across dimensions = [2] : (tensor<4x2x2xi32>, tensor<i32>) -> tensor<4x2xi32>
  %41 = stablehlo.constant dense<2> : tensor<4x2xi32>
  %42 = stablehlo.compare LT, %40, %41, SIGNED : (tensor<4x2xi32>, tensor<4x2xi32>) -> tensor<4x2xi1>
  %43 = stablehlo.constant dense<0.000000000e+00> : tensor<4x2xf32>
  %44 = stablehlo.select %42, %28, %43 : tensor<4x2xi1>, tensor<4x2xf32>
  %45 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %46 = stablehlo.reduce(%44 init: %45) applies stablehlo.add across dimensions = [1] : (tensor<4x2xf32>, tensor<f32>) -> tensor<4xf32>
  %47 = stablehlo.reshape %46 : (tensor<4xf32>) -> tensor<1x4xf32>
  %48 = stablehlo.compare EQ, %47, %47, FLOAT : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xi1>
  %49 = stablehlo.constant dense<0xFF800000> : tensor<1x4xf32>
  %50 = stablehlo.select %48, %47, %49 : tensor<1x4xi1>, tensor<1x4xf32>
  %51 = stablehlo.broadcast_in_dim %50, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<1x4x4xf32>
  %52 = stablehlo.broadcast_in_dim %50, dims = [0, 2] : (tensor<1x4xf32>) -> tensor<1x4x4xf32>
  %53 = stablehlo.iota dim = 1 : tensor<1x4x4xi32>
  %54 = stablehlo.iota dim = 2 : tensor<1x4x4xi32>
  %55 = stablehlo.compare LT, %54, %53, SIGNED : (tensor<1x4x4xi32>, tensor<1x4x4xi32>) -> tensor<1x4x4xi1>
  %56 = stablehlo.compare GT, %52, %51, FLOAT : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x4xi1>
  %57 = stablehlo.compare EQ, %52, %51, FLOAT : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x4x4xi1>
  %58 = stablehlo.and %57, %55 : tensor<1x4x4xi1>
  %59 = stablehlo.or %56, %58 : tensor<1x4x4xi1>
  %60 = stablehlo.convert %59 : (tensor<1x4x4xi1>) -> tensor<1x4x4xi32>
  %61 = stablehlo.constant dense<0> : tensor<i32>
  %62 = stablehlo.reduce(%60 init: %61) applies stablehlo.add across dimensions = [2] : (tensor<1x4x4xi32>, tensor<i32>) -> tensor<1x4xi32>
  %63 = stablehlo.constant dense<2> : tensor<1x4xi32>
  %64 = stablehlo.compare LT, %62, %63, SIGNED : (tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x4xi1>
  %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1] : (tensor<1x4xi1>) -> tensor<1x4x2xi1>
  %66 = stablehlo.reshape %65 : (tensor<1x4x2xi1>) -> tensor<1x8xi1>
  %67 = stablehlo.constant dense<0xFF800000> : tensor<1x8xf32>
  %68 = stablehlo.select %66, %27, %67 : tensor<1x8xi1>, tensor<1x8xf32>
  %69 = stablehlo.broadcast_in_dim %68, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8x8xf32>
  %70 = stablehlo.broadcast_in_dim %68, dims = [0, 2] : (tensor<1x8xf32>) -> tensor<1x8x8xf32>
  %71 = stablehlo.iota dim = 1 : tensor<1x8x8xi32>
  %72 = stablehlo.iota dim = 2 : tensor<1x8x8xi32>
  %73 = stablehlo.compare LT, %72, %71, SIGNED : (tensor<1x8x8xi32>, tensor<1x8x8xi32>) -> tensor<1x8x8xi1>
  %74 = stablehlo.compare GT, %70, %69, FLOAT : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xi1>
  %75 = stablehlo.compare EQ, %70, %69, FLOAT : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xi1>
  %76 = stablehlo.and %75, %73 : tensor<1x8x8xi1>
  %77 = stablehlo.or %74, %76 : tensor<1x8x8xi1>
  %78 = stablehlo.convert %77 : (tensor<1x8x8xi1>) -> tensor<1x8x8xi32>
  %79 = stablehlo.constant dense<0> : tensor<i32>
  %80 = stablehlo.reduce(%78 init: %79) applies stablehlo.add across dimensions = [2] : (tensor<1x8x8xi32>, tensor<i32>) -> tensor<1x8xi32>
  %81 = stablehlo.iota dim = 1 : tensor<1x8xi32>
  %82 = stablehlo.iota dim = 1 : tensor<1x2x8xi32>
  %83 = stablehlo.broadcast_in_dim %80, dims = [0, 2] : (tensor<1x8xi32>) -> tensor<1x2x8xi32>
  %84 = stablehlo.compare EQ, %83, %82, SIGNED : (tensor<1x2x8xi32>, tensor<1x2x8xi32>) -> tensor<1x2x8xi1>
  %85 = stablehlo.broadcast_in_dim %81, dims = [0, 2] : (tensor<1x8xi32>) -> tensor<1x2x8xi32>
  %86 = stablehlo.constant dense<0> : tensor<1x2x8xi32>
  %87 = stablehlo.select %84, %85, %86 : tensor<1x2x8xi1>, tensor<1x2x8xi32>
  %88 = stablehlo.constant dense<0> : tensor<i32>
  %89 = stablehlo.reduce(%87 init: %88) applies stablehlo.add across dimensions = [2] : (tensor<1x2x8xi32>, tensor<i32>) -> tensor<1x2xi32>
  %90 = stablehlo.iota dim = 1 : tensor<1x2x8xi32>
  %91 = stablehlo.broadcast_in_dim %80, dims = [0, 2] : (tensor<1x8xi32>) -> tensor<1x2x8xi32>
  %92 = stablehlo.compare EQ, %91, %90, SIGNED : (tensor<1x2x8xi32>, tensor<1x2x8xi32>) -> tensor<1x2x8xi1>
  %93 = stablehlo.broadcast_in_dim %21, dims = [0, 2] : (tensor<1x8xf32>) -> tensor<1x2x8xf32>
  %94 = stablehlo.constant dense<0.000000000e+00> : tensor<1x2x8xf32>
  %95 = stablehlo.select %92, %93, %94 : tensor<1x2x8xi1>, tensor<1x2x8xf32>
  %96 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %97 = stablehlo.reduce(%95 init: %96) applies stablehlo.add across dimensions = [2] : (tensor<1x2x8xf32>, tensor<f32>) -> tensor<1x2xf32>
  %98 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %99 = stablehlo.reduce(%97 init: %98) applies stablehlo.add across dimensions = [1] : (tensor<1x2xf32>, tensor<f32>) -> tensor<1xf32>
  %100 = stablehlo.constant dense<0.000000000e+00> : tensor<1xf32>
  %101 = stablehlo.add %99, %100 : tensor<1xf32>
  %102 = stablehlo.broadcast_in_dim %101, dims = [0] : (tensor<1xf32>) -> tensor<1x2xf32>
  %103 = stablehlo.divide %97, %102 : tensor<1x2xf32>
  %104 = stablehlo.constant dense<2.500000000e+00> : tensor<1x2xf32>
  %105 = stablehlo.multiply %103, %104 : tensor<1x2xf32>
  %106 = stablehlo.reshape %89 : (tensor<1x2xi32>) -> tensor<1x1x2xi32>
  %107 = stablehlo.reshape %106 : (tensor<1x1x2xi32>) -> tensor<1x2xi32>
  %108 = stablehlo.reshape %105 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %109 = stablehlo.reshape %108 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %110 = stablehlo.reshape %14 : (tensor<1x64xf32>) -> tensor<1x1x64xf32>
  %111 = stablehlo.reshape %110 : (tensor<1x1x64xf32>) -> tensor<1x64xf32>
  %112 = stablehlo.broadcast_in_dim %111, dims = [0, 2] : (tensor<1x64xf32>) -> tensor<1x2x64xf32>
  %113 = stablehlo.reshape %112 : (tensor<1x2x64xf32>) -> tensor<2x64xf32>
  %114 = stablehlo.reshape %107 : (tensor<1x2xi32>) -> tensor<2xi32>
  %115 = stablehlo.reshape %109 : (tensor<1x2xf32>) -> tensor<2x1xf32>
  %119 = stablehlo.reshape %116 : (tensor<512x64xui8>) -> tensor<8x64x64xui8>
  %120 = "stablehlo.gather"(%119, %114) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64, 64>}> : (tensor<8x64x64xui8>, tensor<2xi32>) -> tensor<2x64x64xui8>
  %121 = stablehlo.reshape %120 : (tensor<2x64x64xui8>) -> tensor<128x64xui8>
  %122 = stablehlo.reshape %117 : (tensor<512x2xbf16>) -> tensor<8x64x2xbf16>
  %123 = "stablehlo.gather"(%122, %114) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64, 2>}> : (tensor<8x64x2xbf16>, tensor<2xi32>) -> tensor<2x64x2xbf16>
  %124 = stablehlo.reshape %123 : (tensor<2x64x2xbf16>) -> tensor<128x2xbf16>
  %125 = stablehlo.reshape %118 : (tensor<512x2xbf16>) -> tensor<8x64x2xbf16>
  %126 = "stablehlo.gather"(%125, %114) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64, 2>}> : (tensor<8x64x2xbf16>, tensor<2xi32>) -> tensor<2x64x2xbf16>
  %127 = stablehlo.reshape %126 : (tensor<2x64x2xbf16>) -> tensor<128x2xbf16>
  %128 = stablehlo.convert %121 : (tensor<128x64xui8>) -> tensor<128x64xf32>
  %129 = stablehlo.reshape %128 : (tensor<128x64xf32>) -> tensor<128x2x32xf32>
  %130 = stablehlo.convert %124 : (tensor<128x2xbf16>) -> tensor<128x2xf32>
  %131 = stablehlo.broadcast_in_dim %130, dims = [0, 1] : (tensor<128x2xf32>) -> tensor<128x2x32xf32>
  %132 = stablehlo.multiply %129, %131 : tensor<128x2x32xf32>
  %133 = stablehlo.convert %127 : (tensor<128x2xbf16>) -> tensor<128x2xf32>
  %134 = stablehlo.broadcast_in_dim %133, dims = [0, 1] : (tensor<128x2xf32>) -> tensor<128x2x32xf32>
  %135 = stablehlo.add %132, %134 : tensor<128x2x32xf32>
  %136 = stablehlo.reshape %135 : (tensor<128x2x32xf32>) -> tensor<128x64xf32>
  %137 = stablehlo.reshape %136 : (tensor<128x64xf32>) -> tensor<2x64x64xf32>
  %138 = stablehlo.dot_general %113, %137, batching_dims = [0] x [0], contracting_dims = [1] x [2], precision = [HIGHEST, HIGHEST] : (tensor<2x64xf32>, tensor<2x64x64xf32>) -> tensor<2x64xf32>
  %139 = stablehlo.reshape %138 : (tensor<2x64xf32>) -> tensor<2x1x64xf32>
  %140 = stablehlo.slice %139 [0:2, 0:1, 0:32] : (tensor<2x1x64xf32>) -> tensor<2x1x32xf32>
  %141 = stablehlo.slice %139 [0:2, 0:1, 32:64] : (tensor<2x1x64xf32>) -> tensor<2x1x32xf32>
  %142 = stablehlo.logistic %140 : tensor<2x1x32xf32>
  %143 = stablehlo.multiply %140, %142 : tensor<2x1x32xf32>
  %144 = stablehlo.multiply %143, %141 : tensor<2x1x32xf32>
  %145 = stablehlo.reshape %144 : (tensor<2x1x32xf32>) -> tensor<2x32xf32>
  %149 = stablehlo.reshape %146 : (tensor<512x32xui8>) -> tensor<8x64x32xui8>
  %150 = "stablehlo.gather"(%149, %114) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64, 32>}> : (tensor<8x64x32xui8>, tensor<2xi32>) -> tensor<2x64x32xui8>
  %151 = stablehlo.reshape %150 : (tensor<2x64x32xui8>) -> tensor<128x32xui8>
  %152 = stablehlo.reshape %147 : (tensor<512x1xbf16>) -> tensor<8x64x1xbf16>
  %153 = "stablehlo.gather"(%152, %114) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64, 1>}> : (tensor<8x64x1xbf16>, tensor<2xi32>) -> tensor<2x64x1xbf16>
  %154 = stablehlo.reshape %153 : (tensor<2x64x1xbf16>) -> tensor<128x1xbf16>
  %155 = stablehlo.reshape %148 : (tensor<512x1xbf16>) -> tensor<8x64x1xbf16>
  %156 = "stablehlo.gather"(%155, %114) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64, 1>}> : (tensor<8x64x1xbf16>, tensor<2xi32>) -> tensor<2x64x1xbf16>
  %157 = stablehlo.reshape %156 : (tensor<2x64x1xbf16>) -> tensor<128x1xbf16>
  %158 = stablehlo.convert %151 : (tensor<128x32xui8>) -> tensor<128x32xf32>
  %159 = stablehlo.reshape %158 : (tensor<128x32xf32>) -> tensor<128x1x32xf32>
  %160 = stablehlo.convert %154 : (tensor<128x1xbf16>) -> tensor<128x1xf32>
  %161 = stablehlo.broadcast_in_dim %160, dims = [0, 1] : (tensor<128x1xf32>) -> tensor<128x1x32xf32>
  %162 = stablehlo.multiply %159, %161 : tensor<128x1x32xf32>
  %163 = stablehlo.convert %157 : (tensor<128x1xbf16>) -> tensor<128x1xf32>
  %164 = stablehlo.broadcast_in_dim %163, dims = [0, 1] : (tensor<128x1xf32>) -> tensor<128x1x32xf32>
  %165 = stablehlo.add %162, %164 : tensor<128x1x32xf32>
  %166 = stablehlo.reshape %165 : (tensor<128x1x32xf32>) -> tensor<128x32xf32>
  %167 = stablehlo.reshape %166 : (tensor<128x32xf32>) -> tensor<2x64x32xf32>
  %168 = stablehlo.dot_general %145, %167, batching_dims = [0] x [0], contracting_dims = [1] x [2], precision = [HIGHEST, HIGHEST] : (tensor<2x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64xf32>
  %169 = stablehlo.reshape %168 : (tensor<2x64xf32>) -> tensor<2x1x64xf32>
  %170 = stablehlo.broadcast_in_dim %115, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x1x64xf32>
  %171 = stablehlo.multiply %169, %170 : tensor<2x1x64xf32>
  %172 = stablehlo.reshape %171 : (tensor<2x1x64xf32>) -> tensor<1x2x64xf32>
  %173 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %174 = stablehlo.reduce(%172 init: %173) applies stablehlo.add across dimensions = [1] : (tensor<1x2x64xf32>, tensor<f32>) -> tensor<1x64xf32>
  %175 = stablehlo.reshape %174 : (tensor<1x64xf32>) -> tensor<1x1x64xf32>
  %176 = stablehlo.reshape %175 : (tensor<1x1x64xf32>) -> tensor<1x64xf32>
  %177 = stablehlo.reshape %176 : (tensor<1x64xf32>) -> tensor<1x1x64xf32>
  %178 = stablehlo.slice %1 [2:3] : (tensor<16xi32>) -> tensor<1xi32>
  %179 = "stablehlo.gather"(%4, %178) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 192>}> : (tensor<3x192xf32>, tensor<1xi32>) -> tensor<1x192xf32>
  %180 = stablehlo.slice %1 [3:4] : (tensor<16xi32>) -> tensor<1xi32>
  %181 = stablehlo.constant dense<0> : tensor<1xi32>
  %182 = stablehlo.compare NE, %180, %181, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %183 = stablehlo.broadcast_in_dim %182, dims = [0] : (tensor<1xi1>) -> tensor<1x192xi1>
  %184 = stablehlo.constant dense<0.000000000e+00> : tensor<1x192xf32>
  %185 = stablehlo.select %183, %184, %179 : tensor<1x192xi1>, tensor<1x192xf32>
  %186 = stablehlo.reshape %185 : (tensor<1x192xf32>) -> tensor<1x3x64xf32>
  %187 = stablehlo.concatenate %186, %177, dim = 1 : (tensor<1x3x64xf32>, tensor<1x1x64xf32>) -> tensor<1x4x64xf32>
  %189 = stablehlo.reshape %188 : (tensor<256xf32>) -> tensor<64x4xf32>
  %190 = stablehlo.constant dense<0.000000000e+00> : tensor<1x1x64xf32>
  %191 = stablehlo.slice %189 [0:64, 0:1] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %192 = stablehlo.reshape %191 : (tensor<64x1xf32>) -> tensor<64xf32>
  %193 = stablehlo.broadcast_in_dim %192, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
  %194 = stablehlo.slice %187 [0:1, 0:1, 0:64] : (tensor<1x4x64xf32>) -> tensor<1x1x64xf32>
  %195 = stablehlo.multiply %194, %193 : tensor<1x1x64xf32>
  %196 = stablehlo.add %190, %195 : tensor<1x1x64xf32>
  %197 = stablehlo.slice %189 [0:64, 1:2] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %198 = stablehlo.reshape %197 : (tensor<64x1xf32>) -> tensor<64xf32>
  %199 = stablehlo.broadcast_in_dim %198, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
  %200 = stablehlo.slice %187 [0:1, 1:2, 0:64] : (tensor<1x4x64xf32>) -> tensor<1x1x64xf32>
  %201 = stablehlo.multiply %200, %199 : tensor<1x1x64xf32>
  %202 = stablehlo.add %196, %201 : tensor<1x1x64xf32>
  %203 = stablehlo.slice %189 [0:64, 2:3] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %204 = stablehlo.reshape %203 : (tensor<64x1xf32>) -> tensor<64xf32>
  %205 = stablehlo.broadcast_in_dim %204, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
  %206 = stablehlo.slice %187 [0:1, 2:3, 0:64] : (tensor<1x4x64xf32>) -> tensor<1x1x64xf32>
  %207 = stablehlo.multiply %206, %205 : tensor<1x1x64xf32>
  %208 = stablehlo.add %202, %207 : tensor<1x1x64xf32>
  %209 = stablehlo.slice %189 [0:64, 3:4] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %210 = stablehlo.reshape %209 : (tensor<64x1xf32>) -> tensor<64xf32>
  %211 = stablehlo.broadcast_in_dim %210, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
  %212 = stablehlo.slice %187 [0:1, 3:4, 0:64] : (tensor<1x4x64xf32>) -> tensor<1x1x64xf32>
  %213 = stablehlo.multiply %212, %211 : tensor<1x1x64xf32>
  %214 = stablehlo.add %208, %213 : tensor<1x1x64xf32>
  %215 = stablehlo.logistic %214 : tensor<1x1x64xf32>
  %216 = stablehlo.multiply %214, %215 : tensor<1x1x64xf32>
  %217 = stablehlo.reshape %216 : (tensor<1x1x64xf32>) -> tensor<1x64xf32>
  %218 = stablehlo.slice %1 [6:7] : (tensor<16xi32>) -> tensor<1xi32>
  %219 = stablehlo.reshape %218 : (tensor<1xi32>) -> tensor<i32>
  %220 = stablehlo.slice %187 [0:1, 1:4, 0:64] : (tensor<1x4x64xf32>) -> tensor<1x3x64xf32>
  %221 = stablehlo.reshape %220 : (tensor<1x3x64xf32>) -> tensor<1x192xf32>
  %222 = stablehlo.slice %1 [2:3] : (tensor<16xi32>) -> tensor<1xi32>
  %223 = "stablehlo.scatter"(%4, %222, %221) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%224: tensor<f32>, %225: tensor<f32>):
    stablehlo.return %225 : tensor<f32>
  }) : (tensor<3x192xf32>, tensor<1xi32>, tensor<1x192xf32>) -> tensor<3x192xf32>
  %226 = stablehlo.slice %217 [0:1, 48:50] : (tensor<1x64xf32>) -> tensor<1x2xf32>
  %227 = stablehlo.reshape %226 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %228 = stablehlo.reshape %227 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %230 = stablehlo.broadcast_in_dim %229, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
  %231 = stablehlo.add %228, %230 : tensor<1x2xf32>
  %232 = stablehlo.constant dense<2.000000000e+01> : tensor<1x2xf32>
  %233 = stablehlo.minimum %231, %232 : tensor<1x2xf32>
  %234 = stablehlo.exponential %233 : tensor<1x2xf32>
  %235 = stablehlo.log_plus_one %234 : tensor<1x2xf32>
  %236 = stablehlo.constant dense<2.000000000e+01> : tensor<1x2xf32>
  %237 = stablehlo.compare GT, %231, %236, FLOAT : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xi1>
  %238 = stablehlo.select %237, %231, %235 : tensor<1x2xi1>, tensor<1x2xf32>
  %239 = stablehlo.slice %217 [0:1, 0:16] : (tensor<1x64xf32>) -> tensor<1x16xf32>
  %240 = stablehlo.reshape %239 : (tensor<1x16xf32>) -> tensor<1x1x16xf32>
  %241 = stablehlo.multiply %240, %240 : tensor<1x1x16xf32>
  %242 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %243 = stablehlo.reduce(%241 init: %242) applies stablehlo.add across dimensions = [2] : (tensor<1x1x16xf32>, tensor<f32>) -> tensor<1x1xf32>
  %244 = stablehlo.constant dense<0.000000000e+00> : tensor<1x1xf32>
  %245 = stablehlo.add %243, %244 : tensor<1x1xf32>
  %246 = stablehlo.sqrt %245 : tensor<1x1xf32>
  %247 = stablehlo.broadcast_in_dim %246, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x1x16xf32>
  %248 = stablehlo.divide %240, %247 : tensor<1x1x16xf32>
  %249 = stablehlo.broadcast_in_dim %248, dims = [0, 1, 3] : (tensor<1x1x16xf32>) -> tensor<1x1x2x16xf32>
  %250 = stablehlo.reshape %249 : (tensor<1x1x2x16xf32>) -> tensor<1x2x16xf32>
  %251 = stablehlo.reshape %250 : (tensor<1x2x16xf32>) -> tensor<1x1x2x16xf32>
  %252 = stablehlo.slice %217 [0:1, 16:32] : (tensor<1x64xf32>) -> tensor<1x16xf32>
  %253 = stablehlo.reshape %252 : (tensor<1x16xf32>) -> tensor<1x1x16xf32>
  %254 = stablehlo.multiply %253, %253 : tensor<1x1x16xf32>
  %255 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %256 = stablehlo.reduce(%254 init: %255) applies stablehlo.add across dimensions = [2] : (tensor<1x1x16xf32>, tensor<f32>) -> tensor<1x1xf32>
  %257 = stablehlo.constant dense<0.000000000e+00> : tensor<1x1xf32>
  %258 = stablehlo.add %256, %257 : tensor<1x1xf32>
  %259 = stablehlo.sqrt %258 : tensor<1x1xf32>
  %260 = stablehlo.broadcast_in_dim %259, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x1x16xf32>
  %261 = stablehlo.divide %253, %260 : tensor<1x1x16xf32>
  %262 = stablehlo.broadcast_in_dim %261, dims = [0, 1, 3] : (tensor<1x1x16xf32>) -> tensor<1x1x2x16xf32>
  %263 = stablehlo.reshape %262 : (tensor<1x1x2x16xf32>) -> tensor<1x2x16xf32>
  %264 = stablehlo.reshape %263 : (tensor<1x2x16xf32>) -> tensor<1x1x2x16xf32>
  %265 = stablehlo.slice %217 [0:1, 32:48] : (tensor<1x64xf32>) -> tensor<1x16xf32>
  %266 = stablehlo.reshape %265 : (tensor<1x16xf32>) -> tensor<1x2x8xf32>
  %267 = stablehlo.reshape %266 : (tensor<1x2x8xf32>) -> tensor<1x1x2x8xf32>
  %268 = stablehlo.exponential %229 : tensor<2xf32>
  %269 = stablehlo.negate %268 : tensor<2xf32>
  %270 = stablehlo.broadcast_in_dim %269, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
  %271 = stablehlo.multiply %238, %270 : tensor<1x2xf32>
  %272 = stablehlo.exponential %271 : tensor<1x2xf32>
  %273 = stablehlo.reshape %272 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %274 = stablehlo.slice %217 [0:1, 50:52] : (tensor<1x64xf32>) -> tensor<1x2xf32>
  %275 = stablehlo.reshape %274 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %276 = stablehlo.reshape %275 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %277 = stablehlo.logistic %276 : tensor<1x2xf32>
  %278 = stablehlo.reshape %277 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %279 = stablehlo.slice %1 [2:3] : (tensor<16xi32>) -> tensor<1xi32>
  %280 = "stablehlo.gather"(%5, %279) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 256>}> : (tensor<3x256xf32>, tensor<1xi32>) -> tensor<1x256xf32>
  %281 = stablehlo.slice %1 [3:4] : (tensor<16xi32>) -> tensor<1xi32>
  %282 = stablehlo.constant dense<0> : tensor<1xi32>
  %283 = stablehlo.compare NE, %281, %282, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %284 = stablehlo.broadcast_in_dim %283, dims = [0] : (tensor<1xi1>) -> tensor<1x256xi1>
  %285 = stablehlo.constant dense<0.000000000e+00> : tensor<1x256xf32>
  %286 = stablehlo.select %284, %285, %280 : tensor<1x256xi1>, tensor<1x256xf32>
  %287 = stablehlo.reshape %286 : (tensor<1x256xf32>) -> tensor<1x2x16x8xf32>
  %288 = stablehlo.reshape %251 : (tensor<1x1x2x16xf32>) -> tensor<1x2x16xf32>
  %289 = stablehlo.reshape %264 : (tensor<1x1x2x16xf32>) -> tensor<1x2x16xf32>
  %290 = stablehlo.reshape %267 : (tensor<1x1x2x8xf32>) -> tensor<1x2x8xf32>
  %291 = stablehlo.reshape %273 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %292 = stablehlo.reshape %278 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %293 = stablehlo.broadcast_in_dim %291, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2x16x8xf32>
  %294 = stablehlo.multiply %287, %293 : tensor<1x2x16x8xf32>
  %295 = stablehlo.broadcast_in_dim %289, dims = [0, 1, 2] : (tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  %296 = stablehlo.multiply %294, %295 : tensor<1x2x16x8xf32>
  %297 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %298 = stablehlo.reduce(%296 init: %297) applies stablehlo.add across dimensions = [2] : (tensor<1x2x16x8xf32>, tensor<f32>) -> tensor<1x2x8xf32>
  %299 = stablehlo.subtract %290, %298 : tensor<1x2x8xf32>
  %300 = stablehlo.broadcast_in_dim %292, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2x8xf32>
  %301 = stablehlo.multiply %299, %300 : tensor<1x2x8xf32>
  %302 = stablehlo.broadcast_in_dim %301, dims = [0, 1, 3] : (tensor<1x2x8xf32>) -> tensor<1x2x16x8xf32>
  %303 = stablehlo.broadcast_in_dim %289, dims = [0, 1, 2] : (tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  %304 = stablehlo.multiply %303, %302 : tensor<1x2x16x8xf32>
  %305 = stablehlo.add %294, %304 : tensor<1x2x16x8xf32>
  %306 = stablehlo.broadcast_in_dim %288, dims = [0, 1, 2] : (tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  %307 = stablehlo.multiply %305, %306 : tensor<1x2x16x8xf32>
  %308 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %309 = stablehlo.reduce(%307 init: %308) applies stablehlo.add across dimensions = [2] : (tensor<1x2x16x8xf32>, tensor<f32>) -> tensor<1x2x8xf32>
  %310 = stablehlo.reshape %309 : (tensor<1x2x8xf32>) -> tensor<1x16xf32>
  %311 = stablehlo.reshape %305 : (tensor<1x2x16x8xf32>) -> tensor<1x256xf32>
  %312 = stablehlo.slice %1 [2:3] : (tensor<16xi32>) -> tensor<1xi32>
  %313 = "stablehlo.scatter"(%5, %312, %311) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%314: tensor<f32>, %315: tensor<f32>):
    stablehlo.return %315 : tensor<f32>
  }) : (tensor<3x256xf32>, tensor<1xi32>, tensor<1x256xf32>) -> tensor<3x256xf32>
  %316 = stablehlo.reshape %310 : (tensor<1x16xf32>) -> tensor<1x1x16xf32>
  %317 = stablehlo.reshape %316 : (tensor<1x1x16xf32>) -> tensor<1x16xf32>
  %318 = stablehlo.reshape %317 : (tensor<1x16xf32>) -> tensor<1x1x16xf32>
  %319 = stablehlo.reshape %318 : (tensor<1x1x16xf32>) -> tensor<1x16xf32>
  %320 = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %321 = stablehlo.reduce(%319 init: %320) applies stablehlo.maximum across dimensions = [1] : (tensor<1x16xf32>, tensor<f32>) -> tensor<1xf32>
  %322 = stablehlo.broadcast_in_dim %321, dims = [0] : (tensor<1xf32>) -> tensor<1x16xf32>
  %323 = stablehlo.compare EQ, %319, %322, FLOAT : (tensor<1x16xf32>, tensor<1x16xf32>) -> tensor<1x16xi1>
  %324 = stablehlo.iota dim = 1 : tensor<1x16xi32>
  %325 = stablehlo.constant dense<16> : tensor<1x16xi32>
  %326 = stablehlo.select %323, %324, %325 : tensor<1x16xi1>, tensor<1x16xi32>
  %327 = stablehlo.constant dense<16> : tensor<i32>
  %328 = stablehlo.reduce(%326 init: %327) applies stablehlo.minimum across dimensions = [1] : (tensor<1x16xi32>, tensor<i32>) -> tensor<1xi32>
  %329 = stablehlo.slice %319 [0:1, 0:1] : (tensor<1x16xf32>) -> tensor<1x1xf32>
  %330 = stablehlo.reshape %329 : (tensor<1x1xf32>) -> tensor<1xf32>
  %331 = stablehlo.abs %321 : tensor<1xf32>
  %332 = stablehlo.constant dense<0x7F800000> : tensor<1xf32>
  %333 = stablehlo.compare LT, %331, %332, FLOAT : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
  %334 = stablehlo.abs %330 : tensor<1xf32>
  %335 = stablehlo.constant dense<0x7F800000> : tensor<1xf32>
  %336 = stablehlo.compare LT, %334, %335, FLOAT : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
  %337 = stablehlo.and %333, %336 : tensor<1xi1>
  %338 = stablehlo.constant dense<-1> : tensor<1xi32>
  %339 = stablehlo.select %337, %328, %338 : tensor<1xi1>, tensor<1xi32>
  %340 = stablehlo.reshape %339 : (tensor<1xi32>) -> tensor<1x1xi32>
  return %2, %3, %223, %313, %340 : tensor<576x32xf32>, tensor<576x32xf32>, tensor<3x192xf32>, tensor<3x256xf32>, tensor<1x1xi32>
}
}
